# SPDX-License-Identifier: Apache-2.0
"""``splashpy bench``: what drafts are worth, measured against plain decoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from splashpy.cli.bench_options import BENCH_ROWS
from splashpy.cli.bench_settings import GPU_COOLDOWN, TOKENS, Settings, questions
from splashpy.cli.bench_subject import Runner, Subject, opened
from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON, ENGINE
from splashpy.cli.output import document as json_document
from splashpy.cli.page import Page, PageCommand
from splashpy.cli.signals import Interrupts
from splashpy.errors import LosslessError, RegressionError, SplashError

if TYPE_CHECKING:
    from splashpy.bench.leg import Leg
    from splashpy.bench.regression import Delta

EXIT_PARTIAL = 10


def bench(invocation: Invocation) -> int:
    """Measure, tell, compare; returns the exit code.

    Raises:
        LosslessError: drafts changed a text.
        RegressionError: a figure fell by more than is allowed.
        SplashError: usage, model or file errors.
        KeyboardInterrupt: stopped before anything was measured.
    """
    from splashpy.cli.resolve import find_or_build

    settings = Settings.of(invocation)
    with Interrupts(invocation.output.err) as interrupts:
        found = None
        if not settings.url:
            found = find_or_build(invocation, invocation.given["model"], interrupts)
        if settings.compare is not None and found is not None:
            _refuse_different(settings, found.name)
        with opened(invocation, settings, found, interrupts) as subject:
            if settings.compare is not None:
                _refuse_different(settings, subject.name)
            return _Measurement(invocation, settings, interrupts, subject).run()


def _refuse_different(settings: Settings, name: str) -> None:
    """Refuse an earlier run of something else, before anything is measured.

    Raises:
        UsageError: a setting that decides what is measured differs.
    """
    from splashpy.bench.regression import refuse_different

    assert settings.compare is not None
    refuse_different(settings.compare, {"settings": settings.asked(name)})


@dataclass(slots=True)
class _Measurement:
    """One call of the command."""

    invocation: Invocation
    settings: Settings
    interrupts: Interrupts
    subject: Subject

    def run(self) -> int:
        """Go through all questions; returns the exit code."""
        from splashpy.bench.document import summarize
        from splashpy.bench.environment import environment

        session = self.subject.session
        asked, commits = questions(self.settings, self.invocation, session)
        facts = environment(_today())
        described = self._described(commits, facts)
        legs, complete = self._measure(asked, described, facts)
        if not legs:
            self.interrupts.check()
        document = summarize(
            legs, settings=described, environment=facts, complete=complete
        )
        return self._tell(document)

    def _described(
        self, commits: Mapping[str, str], facts: Mapping[str, str]
    ) -> dict[str, Any]:
        return {
            **self.settings.asked(self.subject.name),
            **self.subject.facts,
            "suite_commits": dict(commits),
            "versions": {
                name: facts.get(name, "") for name in ("splashpy", "mlx", "blas")
            },
        }

    def _measure(
        self, asked: list[Any], described: dict[str, Any], facts: Mapping[str, str]
    ) -> tuple[list[Leg], bool]:
        """The legs of this run and of what it goes on with; whether that is all."""
        from splashpy.bench.requests import RequestLog

        settings = self.settings
        log = RequestLog.open(settings.out, described) if settings.out else None
        legs = list(log.legs) if log else []
        if legs:
            self.invocation.output.note(f"going on after {len(legs)} answers")
        total = len(asked) * settings.trials
        done = {(leg.suite, leg.prompt, leg.trial) for leg in legs}
        progress = self.invocation.progress()
        progress.answers(len(done), total, "")
        try:
            places = [leg.place for leg in legs]
            for answered in self._runner(facts).run(asked, places):
                legs += answered
                if log:
                    log.add(answered)
                first = answered[0]
                done |= {(leg.suite, leg.prompt, leg.trial) for leg in answered}
                progress.answers(len(done), total, f"{first.suite} {first.prompt}")
        finally:
            progress.close()
        return legs, len(done) >= total

    def _runner(self, facts: Mapping[str, str]) -> Runner:
        cooldown = self.settings.cooldown
        if cooldown is None:
            here = "gpu_cores" in facts and not self.settings.url
            cooldown = GPU_COOLDOWN if here else 0.0
        return self.subject.prepare(cooldown, lambda: self.interrupts.requested)

    def _tell(self, document: dict[str, Any]) -> int:
        """Print and write the result; returns the exit code.

        Raises:
            LosslessError, RegressionError: what is wrong with it.
        """
        from splashpy.protocol import error_fields

        compared, output = self._compare(document), self.invocation.output
        fault = _fault(document, compared)
        document["compared"] = [
            {**asdict(delta), "change": delta.change} for delta in compared
        ]
        document["error"] = fault and error_fields(fault)
        if self.settings.out:
            self._write(self.settings.out, document)
        if output.json:
            output.document("bench", document)
            return fault.exit_code if fault else self._exit_code(document)
        self._print(document, compared)
        if fault:
            raise fault
        return self._exit_code(document)

    def _exit_code(self, document: Mapping[str, Any]) -> int:
        return 0 if document["complete"] else EXIT_PARTIAL

    def _compare(self, document: Mapping[str, Any]) -> list[Delta]:
        from splashpy.bench.regression import deltas

        earlier = self.settings.compare
        if earlier is None:
            return []
        return deltas(earlier, document, self.settings.max_regression)

    def _write(self, directory: Path, document: Mapping[str, Any]) -> None:
        from splashpy.bench.plots import speedup_bars, tau_bars
        from splashpy.bench.report import markdown
        from splashpy.bench.requests import write_whole

        plots = {}
        if self.invocation.given["plot"]:
            plots = {
                "speedup.svg": speedup_bars(document),
                "committed.svg": tau_bars(document),
            }
        texts = {
            "bench.json": json_document("bench", document),
            "report.md": markdown(document, plots=list(plots)),
            **plots,
        }
        for name, text in texts.items():
            write_whole(directory / name, text)
        names = ", ".join(["requests.jsonl", *texts])
        self.invocation.output.note(f"written to {directory}: {names}")

    def _print(self, document: Mapping[str, Any], compared: list[Delta]) -> None:
        from splashpy.bench.report import (
            HEADS,
            concurrency_lines,
            rows,
            speedup_lines,
            texts_line,
        )

        output = self.invocation.output
        for name, text in document["environment"].items():
            output.note(f"{name:15} {text}")
        output.table(HEADS, rows(document), wide=True)
        lines = [*speedup_lines(document), texts_line(document)]
        lines += concurrency_lines(document)
        lines += [
            f"{delta.name}: {delta.before:.3f}, now {delta.now:.3f} "
            f"({delta.change:+.1%}; allowed -{delta.allowed:.1%})"
            for delta in compared
        ]
        for line in filter(None, lines):
            output.result(line)


def _fault(document: Mapping[str, Any], compared: list[Delta]) -> SplashError | None:
    mismatches = document["texts"]["mismatches"]
    if mismatches:
        return LosslessError(
            f"drafts changed {mismatches} of {document['texts']['compared']} texts",
            why="more than a tie within rounding explains",
            fix=["splashpy verify MODEL says where", "--no-draft decodes without them"],
        )
    worse = [delta for delta in compared if delta.regressed]
    if worse:
        first = worse[0]
        return RegressionError(
            f"{', '.join(delta.name for delta in worse)} fell",
            why=f"{first.name} {first.before:.3f}, now {first.now:.3f}: "
            f"{first.change:+.1%}, allowed -{first.allowed:.1%}",
            fix=["measure again on a quiet machine, with more --trials"],
        )
    return None


def _today() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="seconds")


BENCH = PageCommand(
    "bench",
    page=Page(
        usage="[MODEL]",
        summary="Measure what drafts are worth, beside plain decoding in the same run.",
        examples=(
            (
                "splashpy bench demo",
                "twelve questions, three times each with drafts and without, in turns",
            ),
            (
                "splashpy bench demo --suite math500 -n 20 --out runs/math --plot",
                "questions from the Hub; a report with drawings in runs/math",
            ),
            (
                "splashpy bench --url http://127.0.0.1:8000/v1 --concurrency 1,4",
                "any OpenAI endpoint, seen from outside, alone and by four at once",
            ),
        ),
        notes=(
            "Which comes first turns with every question, so heat hits both alike.",
            "Speed stands with 95 % intervals. --out goes on where it was stopped.",
            "With --url or --concurrency all figures are those of whoever asks.",
            "Exit codes: 0 measured; 5 slower than --compare allows, or a text that",
            "drafts changed; 10 stopped by Ctrl-C with a result of what was measured.",
        ),
        defaults={
            "max_tokens": str(TOKENS),
            "temp": "0",
            "top_p": "1",
            "top_k": "0",
            "seed": "of each trial",
            "api_key": "none",
        },
        helps={"api_key": "key of the endpoint"},
    ),
    arguments=(click.Argument(["model"], required=False, metavar="[MODEL]"),),
    options=(
        *(row.name for row in BENCH_ROWS["Measurement"]),
        "url",
        "max_tokens",
        "temp",
        "top_k",
        "top_p",
        "seed",
        "api_key",
        *(name for name in ENGINE if name not in ("no_draft", "no_prefix_cache")),
        *COMMON,
    ),
    run=bench,
)
