# SPDX-License-Identifier: Apache-2.0
"""Compare splashpy's decode rate with that of other programs, on the same pair.

The programs are mlx-lm without drafts, PyPI dflash 0.1.0, mlx-dspark and dflash-mlx,
each in the setting its documentation recommends, with the same target weights, drafter
weights, prompts and BLAS. Every program has a process of its own; they answer one after
the other, the order turning with every prompt. A ratio is splashpy's rate over the
other's for one prompt; a prompt counts by the median over its trials, all prompts by
their geometric mean. Rates are tokens after the first over the time between the first
and the last. All texts must be the ones mlx-lm writes, ties within rounding aside.

A program that cannot be installed, or cannot run the pair here, is null in the result,
with the reason. Each process holds a copy of the weights: with a large pair name fewer
programs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import measure

from splashpy.bench.schedule import schedule
from splashpy.bench.statistics import Speedup, speedup
from splashpy.bench.suites import Question, quick_questions
from splashpy.host.model import Speech
from splashpy.package.library import Library
from splashpy.package.model_directory import ModelDirectory
from splashpy.packing.pull import pull
from splashpy.paths import Paths
from splashpy.protocol import Generate

OURS, PLAIN = "splashpy", "mlx_lm"
PEERS = ("dflash", "mlx_lm", "mlx_dspark", "dflash_mlx")
WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Text:
    """What a program wrote, and how fast; the rate is None for one token."""

    ids: list[int]
    rate: float | None


class Program:
    """A process that decodes."""

    def __init__(self, name: str, model: Path, draft: str):
        self.name = name
        script = Path(__file__).with_name("peer_worker.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), name, str(model), draft],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.reason = str(self._reply().get("error", ""))

    def write(self, ids: Sequence[int], tokens: int) -> Text | None:
        """Continue a prompt; None when the program failed, ``reason`` says how."""
        reply = self._ask({"ids": list(ids), "tokens": tokens})
        if "error" in reply:
            self.reason = reply["error"]
            return None
        seconds = reply["seconds"]
        late = sum(at > seconds[0] for at in seconds) if seconds else 0
        rate = late / (seconds[-1] - seconds[0]) if late else None
        return Text(reply["ids"], rate)

    def outcome(self, ids: Sequence[int], plain: Text, other: Text) -> str:
        """Why another program's text differs, if it does; splashpy can tell."""
        asked = {"ids": list(ids), "plain": plain.ids, "other": other.ids}
        return self._ask(asked)["outcome"]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(question) + "\n")
            stdin.flush()
        except BrokenPipeError:
            return {"error": "the process ended"}
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        stdout = self._process.stdout
        assert stdout is not None
        line = stdout.readline()
        return json.loads(line) if line else {"error": "the process ended"}


@dataclass(slots=True)
class Comparison:
    """Everything measured."""

    programs: dict[str, Program]
    tokens: int
    ratios: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    rates: dict[str, list[float]] = field(default_factory=dict)
    outcomes: dict[str, list[str]] = field(default_factory=dict)

    def run(self, prompts: dict[str, tuple[int, ...]], trials: int) -> None:
        """Let every program answer every prompt, in turns."""
        for program in list(self.programs.values()):
            self._write(program, next(iter(prompts.values())), WARM_UP_TOKENS)
        asked = [Question("quick", name, "", ()) for name in prompts]
        for number, turn in enumerate(schedule(asked, list(self.programs), trials), 1):
            ids = prompts[turn.question.id]
            texts = {
                name: self._write(self.programs[name], ids, self.tokens)
                for name in turn.arms
                if name in self.programs
            }
            self._note(turn.question.id, ids, {n: t for n, t in texts.items() if t})
            measure.note(f"{number} of {trials * len(prompts)}")

    def _write(
        self, program: Program, ids: tuple[int, ...], tokens: int
    ) -> Text | None:
        text = program.write(ids, tokens)
        if text is None:
            if program.name == OURS:
                raise SystemExit(f"error: {program.reason}")
            measure.note(f"{program.name} cannot take part: {program.reason}")
            self.programs.pop(program.name).close()
        return text

    def _note(self, prompt: str, ids: tuple[int, ...], texts: dict[str, Text]) -> None:
        ours, plain = texts[OURS], texts.get(PLAIN)
        for name, text in texts.items():
            if text.rate:
                self.rates.setdefault(name, []).append(text.rate)
            if name != OURS and ours.rate and text.rate:
                of_program = self.ratios.setdefault(name, {})
                of_program.setdefault(prompt, []).append(ours.rate / text.rate)
            if plain and name != PLAIN:
                outcome = self.programs[OURS].outcome(ids, plain, text)
                self.outcomes.setdefault(name, []).append(outcome)


def main() -> None:
    parser = measure.options(__doc__ or "", rounds=1)
    parser.add_argument("--model", metavar="DIR", help="another pair's target")
    parser.add_argument("--draft", metavar="DIR", help="another drafter")
    parser.add_argument(
        "--peers", default=",".join(PEERS), help="programs to compare with [all]"
    )
    parser.add_argument("-n", type=int, default=12, help="prompts [%(default)s]")
    parser.add_argument(
        "--max-tokens", type=int, default=96, help="of every answer [%(default)s]"
    )
    options = parser.parse_args()
    model = Path(options.model) if options.model else demo()
    prompts = prompt_ids(model, options.n)
    programs, missing = start(model, options.draft or "", options.peers.split(","))
    comparison = Comparison(programs, options.max_tokens)
    began = dict(programs)
    try:
        comparison.run(prompts, 2 * options.rounds)
    finally:
        for program in began.values():
            program.close()
    missing |= {n: p.reason for n, p in began.items() if n not in comparison.programs}
    document = describe(comparison, missing, str(model))
    measure.report(document, table(document), as_json=options.json)
    mismatches = sum(row["mismatch"] for row in document["texts"].values())
    if mismatches:
        raise SystemExit(f"error: {mismatches} texts differ by more than rounding")


def demo() -> Path:
    paths = Paths.default()
    pull("demo", paths)
    return Library(paths).find("demo").path


def prompt_ids(model: Path, count: int) -> dict[str, tuple[int, ...]]:
    speech = Speech.from_directory(ModelDirectory.open(model), None)
    return {
        question.turns[0]: speech.prompt(
            Generate(id="", messages=({"role": "user", "content": question.turns[0]},))
        ).token_ids
        for question in quick_questions(count)
    }


def start(
    model: Path, draft: str, peers: list[str]
) -> tuple[dict[str, Program], dict[str, str]]:
    """The programs that run here, and why the others do not."""
    unknown = set(peers) - set(PEERS)
    if unknown:
        raise SystemExit(f"error: --peers knows {', '.join(PEERS)}, not {unknown}")
    running: dict[str, Program] = {}
    missing = {name: "not asked for" for name in PEERS if name not in peers}
    for name in (OURS, *peers):
        program = Program(name, model, draft)
        if not program.reason:
            running[name] = program
            continue
        program.close()
        missing[name] = program.reason
        measure.note(f"{name} cannot take part: {program.reason}")
    if OURS in missing:
        raise SystemExit(f"error: splashpy cannot run here: {missing[OURS]}")
    return running, missing


def describe(
    comparison: Comparison, missing: dict[str, str], model: str
) -> dict[str, Any]:
    found: dict[str, Speedup | None] = {
        name: speedup(comparison.ratios.get(name, {})) for name in PEERS
    }
    return {
        "schema": "splashpy.compare_peers/1",
        "model": model,
        "max_tokens": comparison.tokens,
        "ratios": {
            f"vs_{name}": each.geomean.value if each else None
            for name, each in found.items()
        },
        "intervals": {
            f"vs_{name}": each.fields() for name, each in found.items() if each
        },
        "missing": missing,
        "decode_tok_s": {
            name: measure.summary([{"rate": r} for r in taken], "rate")
            for name, taken in comparison.rates.items()
        },
        "texts": {
            name: {kind: taken.count(kind) for kind in ("identical", "tie", "mismatch")}
            for name, taken in comparison.outcomes.items()
        },
        "prompts": {
            name: {prompt: median(each) for prompt, each in by_prompt.items()}
            for name, by_prompt in comparison.ratios.items()
        },
    }


def table(document: dict[str, Any]) -> list[list[str]]:
    rows = [["program", "tok/s", "spread", "splashpy is", "95 % interval", "texts"]]
    for name in (OURS, *PEERS):
        figure = document["decode_tok_s"].get(name)
        if figure is None:
            reason = document["missing"].get(name, "")
            rows.append([name, "-", "", "", "", reason[:80]])
            continue
        ratio = document["intervals"].get(f"vs_{name}")
        texts = document["texts"].get(name)
        rows.append(
            [
                *measure.row(name, figure, ""),
                f"{ratio['geomean']:.2f} x" if ratio else "",
                f"{ratio['low']:.2f} to {ratio['high']:.2f}" if ratio else "",
                ", ".join(f"{n} {kind}" for kind, n in texts.items()) if texts else "",
            ]
        )
    return rows


if __name__ == "__main__":
    main()
