# SPDX-License-Identifier: Apache-2.0
"""What the screen costs: decode speed in the chat against ``splashpy run``.

Both answer the same prompt with the same model at temperature 0, as programs of their
own, interleaved. The chat runs on a pseudo terminal of 100 x 30 cells that is read all
the time; its engine's own ``timing`` says how fast it decoded, as it does for ``run``.
After an answer the chat is left alone and the processor time of its interface process
is taken over ten seconds.
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
import sys, threading, time
from pathlib import Path
from splashpy.chat.app import run_chat
from splashpy.chat.settings import ChatSettings
from splashpy.client.child import ChildClient
from splashpy.client.replay import Recorder
from splashpy.protocol import Load, Sampling

model, prompt, tokens, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
recording, idle = Path(folder) / "recording", Path(folder) / "idle"

def watch():
    while not recording.exists() or '"ev":"done"' not in recording.read_text():
        time.sleep(0.5)
    time.sleep(2.0)
    before = others()
    time.sleep(%s)
    idle.write_text(str(1000 * (others() - before)))

def others():
    "Processor seconds of this process without those of the thread that asks."
    return time.process_time() - time.thread_time()

threading.Thread(target=watch, daemon=True).start()
run_chat(
    lambda: Recorder(ChildClient.spawn(Path(folder) / "engine.log"), recording),
    Load(model=model, name="demo"),
    settings=ChatSettings(sampling=Sampling(temperature=0.0), max_tokens=tokens),
    first_message=prompt,
)
"""


def main() -> None:
    parser = measure.options(__doc__ or "", rounds=2)
    parser.add_argument("--model", default="demo", help="installed model [demo]")
    parser.add_argument("--tokens", type=int, default=192, help="of an answer [192]")
    options = parser.parse_args()
    directory = model_directory(options.model)
    idle: list[float] = []

    def run() -> dict[str, float]:
        return {"rate": run_rate(options.model, options.tokens)}

    def chat() -> dict[str, float]:
        rate, cpu_ms = chat_rate(directory, options.tokens)
        idle.append(cpu_ms)
        return {"rate": rate}

    samples = measure.interleave({"run": run, "chat": chat}, options.rounds)
    rates = {name: measure.summary(taken, "rate") for name, taken in samples.items()}
    document = {
        "schema": "splashpy.bench_chat/1",
        "rates": rates,
        "ratios": {
            "chat_vs_run": rates["chat"]["median"] / rates["run"]["median"],
        },
        "idle_cpu_ms": sorted(idle)[len(idle) // 2],
    }
    rows = [measure.row(name, rate, "tok/s") for name, rate in rates.items()]
    rows.append(["chat / run", f"{document['ratios']['chat_vs_run']:.3f}", ""])
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


def run_rate(model: str, tokens: int) -> float:
    words = ("run", model, PROMPT, "--temp", "0", "--max-tokens", str(tokens))
    answer = json.loads(splashpy(*words, "--json"))
    return rate(answer["usage"], answer["timing"])


def rate(usage: dict[str, Any], timing: dict[str, Any]) -> float:
    """Tokens per second after the first emission."""
    produced = usage["completion"] - timing["first_emission_tokens"]
    return 1000 * produced / timing["decode_ms"]


def chat_rate(directory: str, tokens: int) -> tuple[float, float]:
    """Decode rate of one answer in the chat, and its processor time at rest."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = (directory, PROMPT, str(tokens), folder)
        on_a_terminal(["-c", CHAT % IDLE_SECONDS, *arguments], Path(folder) / "idle")
        recording = (Path(folder) / "recording").read_text(encoding="utf-8")
        events = [json.loads(line) for line in recording.splitlines()]
        done = next(event for event in events if event["ev"] == "done")
        cpu_ms = float((Path(folder) / "idle").read_text(encoding="utf-8"))
    return rate(done["usage"], done["timing"]), cpu_ms


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
        while not (finished.exists() and finished.read_text(encoding="utf-8")):
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
