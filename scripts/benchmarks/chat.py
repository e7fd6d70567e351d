# SPDX-License-Identifier: Apache-2.0
"""What the screen costs: decode speed in the chat against ``splashpy run``.

Both answer the same prompt with the same model at temperature 0, as programs of their
own, interleaved. The chat runs on a pseudo terminal of 100 x 30 cells that is read all
the time; its engine's own ``timing`` says how fast it decoded, as it does for ``run``.
Drafts are kept differently from run to run, which moves both arms: the longer the
answers, the less, and ``taus`` tells by how much.
What the interface process takes of a processor core is measured while the answer
streams, and once over ten seconds after it, in which the chat is left alone.
"""

from __future__ import annotations

import json
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
from fcntl import ioctl
from pathlib import Path
from time import perf_counter
from typing import Any

import measure

PROMPT = "Write a long story about a fox who learns to count, with many details."
PATIENCE_SECONDS = 300.0
IDLE_SECONDS = 10.0
CHAT = """
import json, sys, threading, time
from pathlib import Path
from splashpy.chat.app import run_chat
from splashpy.chat.settings import ChatSettings
from splashpy.client.child import ChildClient
from splashpy.protocol import Cycle, Done, Load, Sampling
from splashpy.wire import to_json

model, prompt, tokens, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
first, finished, measured = threading.Event(), threading.Event(), {}

class Watched(ChildClient):
    "The engine's client; tells when an answer begins and ends."

    def receive(self, timeout=None):
        event = super().receive(timeout)
        if isinstance(event, Cycle) and not first.is_set():
            measured["begun"] = (time.perf_counter(), time.process_time())
            first.set()
        if isinstance(event, Done):
            measured["ended"] = (time.perf_counter(), time.process_time())
            measured["done"] = to_json(event)
            finished.set()
        return event

def watch():
    finished.wait()
    time.sleep(1.0)
    before = others()
    time.sleep(%s)
    (began, used), (ended, used_then) = measured["begun"], measured["ended"]
    result = {
        "done": measured["done"],
        "idle_cpu_ms": 1000 * (others() - before),
        "streaming_cpu_share": (used_then - used) / (ended - began),
    }
    unfinished = Path(folder) / "unfinished"
    unfinished.write_text(json.dumps(result))
    unfinished.rename(Path(folder) / "result")

def others():
    "Processor seconds of this process without those of the thread that asks."
    return time.process_time() - time.thread_time()

threading.Thread(target=watch, daemon=True).start()
run_chat(
    lambda: Watched.spawn(Path(folder) / "engine.log"),
    Load(model=model, name="demo"),
    settings=ChatSettings(sampling=Sampling(temperature=0.0), max_tokens=tokens),
    first_message=prompt,
)
"""


def main() -> None:
    parser = measure.options(__doc__ or "", rounds=8)
    parser.add_argument("--model", default="demo", help="installed model [demo]")
    parser.add_argument("--tokens", type=int, default=320, help="of an answer [320]")
    options = parser.parse_args()
    directory = model_directory(options.model)
    idle: list[float] = []

    def run() -> dict[str, float]:
        return run_figures(options.model, options.tokens)

    def chat() -> dict[str, float]:
        # The first answer, which only warms up, is the one that is followed by rest.
        seconds = 0.0 if idle else IDLE_SECONDS
        taken = chat_figures(directory, options.tokens, seconds)
        idle.append(taken.pop("idle_cpu_ms"))
        return taken

    samples = measure.interleave({"run": run, "chat": chat}, options.rounds)
    rates = {name: measure.summary(taken, "rate") for name, taken in samples.items()}
    taus = {name: measure.summary(taken, "tau") for name, taken in samples.items()}
    shares = measure.summary(samples["chat"], "streaming_cpu_share")
    document = {
        "schema": "splashpy.bench_chat/1",
        "rates": rates,
        "taus": taus,
        "ratios": {
            "chat_vs_run": rates["chat"]["median"] / rates["run"]["median"],
        },
        "idle_cpu_ms": idle[0],
        "streaming_cpu_share": shares["median"],
    }
    rows = [measure.row(name, rate, "tok/s") for name, rate in rates.items()]
    rows.append(["chat / run", f"{document['ratios']['chat_vs_run']:.3f}", ""])
    rows.append(["streaming", f"{100 * shares['median']:.1f} %", "of a core"])
    rows.append(["idle", f"{document['idle_cpu_ms']:.0f} ms", "in 10 s"])
    measure.report(document, rows, as_json=options.json)


def model_directory(name: str) -> str:
    shown = splashpy("show", name, "--json")
    return json.loads(shown)["path"]


def splashpy(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "splashpy", *words],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout


def run_figures(model: str, tokens: int) -> dict[str, float]:
    words = ("run", model, PROMPT, "--temp", "0", "--max-tokens", str(tokens))
    return figures(json.loads(splashpy(*words, "--json")))


def figures(done: dict[str, Any]) -> dict[str, float]:
    """Tokens per second after the first emission, and tokens per cycle."""
    usage, timing = done["usage"], done["timing"]
    produced = usage["completion"] - timing["first_emission_tokens"]
    rate = 1000 * produced / timing["decode_ms"]
    return {"rate": rate, "tau": done["spec"]["tau"]}


def chat_figures(directory: str, tokens: int, rest: float) -> dict[str, float]:
    """The same of one answer in the chat, and what its interface took.

    Args:
        directory: of the model.
        tokens: the most of an answer.
        rest: seconds the chat is left alone afterwards.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result"
        arguments = (directory, PROMPT, str(tokens), folder)
        on_a_terminal(["-c", CHAT % rest, *arguments], result)
        seen = json.loads(result.read_text(encoding="utf-8"))
    cpu = {name: seen[name] for name in ("idle_cpu_ms", "streaming_cpu_share")}
    return {**figures(seen["done"]), **cpu}


def on_a_terminal(words: list[str], finished: Path) -> None:
    """Run a program on a terminal until a file has been written, then quit it."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    program = subprocess.Popen(
        [sys.executable, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
    )
    os.close(theirs)
    end = perf_counter() + PATIENCE_SECONDS
    try:
        while not finished.exists():
            if perf_counter() > end or program.poll() is not None:
                raise SystemExit("the chat did not finish an answer")
            if select.select([ours], [], [], 0.2)[0]:
                os.read(ours, 65536)
        os.write(ours, b"\x11")  # ctrl+q
        while program.poll() is None and perf_counter() < end:
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    os.read(ours, 65536)
                except OSError:  # the program closed its end
                    break
        program.wait(PATIENCE_SECONDS)
    finally:
        program.kill()
        program.wait()
        os.close(ours)


if __name__ == "__main__":
    main()
