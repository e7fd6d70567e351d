# SPDX-License-Identifier: Apache-2.0
"""From a question to an answer on stdout: load, ask, write, report."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from splashpy.cli import exchange, stats
from splashpy.cli.answer import Answer, Display
from splashpy.cli.destination import Sink, into
from splashpy.cli.invocation import Invocation
from splashpy.cli.output import document
from splashpy.cli.progress import ProgressLine
from splashpy.cli.prompt import Question
from splashpy.cli.resolve import find_or_build
from splashpy.cli.signals import Interrupts
from splashpy.client.client import EngineClient
from splashpy.errors import ExtractError
from splashpy.fences import code_blocks
from splashpy.protocol import Done, Event, Generate, Load, LoadProgress, Log, Ready
from splashpy.wire import to_line

EXIT_CUT_OFF = 4
REQUEST_ID = "run-1"


def write_answer(invocation: Invocation, word: str | None, question: Question) -> int:
    """Load the model meant by ``word``, ask, and write the answer.

    Returns:
        The exit code: 0, 4 for a cut answer with --fail-on-length, 130 or 143 when
        stopped.

    Raises:
        SplashError: model, engine or file errors.
        KeyboardInterrupt: stopped before there was an answer.
    """
    given = invocation.given
    out = invocation.output.out
    with Interrupts(invocation.output.err) as interrupts:
        load = load_command(invocation, word, interrupts)
        with (
            into(given["output"], out, before_exit=interrupts.before_exit) as sink,
            connected(invocation) as client,
        ):
            writer = _Writer(invocation, sink, interrupts)
            return writer.write(client, load, _request(invocation, question))


@dataclass(frozen=True, slots=True)
class _Writer:
    """One answer on its way to a sink."""

    invocation: Invocation
    sink: Sink
    interrupts: Interrupts

    def write(self, client: EngineClient, load: Load, request: Generate) -> int:
        """Load, ask, write; returns the exit code."""
        progress = self.invocation.progress()
        try:
            ready = exchange.load(
                client, load, self._while_loading(progress), self.interrupts
            )
            answer, display = Answer(), self._display(progress)
            for event in exchange.follow(client, request, self.interrupts):
                answer.take(event)
                self._event_line(event)
                self._warning(event)
                display.show(event)
            display.finish()
        finally:
            progress.close()
        assert answer.done is not None  # follow ends with it or raises
        return self._end(answer, answer.done, ready, load)

    def _while_loading(self, progress: ProgressLine) -> Callable[[Event], None]:
        def show(event: Event) -> None:
            self._event_line(event)
            if isinstance(event, LoadProgress):
                progress.update(event)
            elif isinstance(event, Ready):
                progress.close()
                self._explain(event)

        return show

    def _explain(self, ready: Ready) -> None:
        """What the colours mean; with -v also who drafts, and the memory plan.

        ``--stats`` tells the plan, too, at the end.
        """
        output = self.invocation.output
        draft = ready.draft
        if output.verbose:
            reason = f": {draft.reason}" if draft.reason else ""
            output.note(f"draft {draft.state}{reason}, block {ready.block_size}")
            if plan := stats.memory_line(ready):
                output.note(plan)
        if self._colors:
            legend = " ".join(
                output.err.paint(text, meaning)
                for text, meaning in (
                    ("accepted draft", "accepted"),
                    ("target's own", "target"),
                    ("lookup", "lookup"),
                )
            )
            output.err.write(f"{legend}\n")

    @property
    def _colors(self) -> bool:
        given = self.invocation.given
        return bool(given["draft_colors"]) and self.sink.stream.color

    def _display(self, progress: ProgressLine) -> Display:
        given, output = self.invocation.given, self.invocation.output
        later = output.json or given["json_stream"] or given["no_stream"]
        later = later or given["extract"] or given["extract_last"]
        reasoning = given["reasoning"] or "auto"
        shown = reasoning == "show" or (reasoning == "auto" and output.err.terminal)
        return Display(
            None if later else self.sink.stream,
            output.err if shown and not output.json else None,
            progress,
            draft_colors=self._colors,
        )

    def _event_line(self, event: Event) -> None:
        if self.invocation.given["json_stream"]:
            self.sink.stream.write(to_line(event).decode("utf-8"))

    def _warning(self, event: Event) -> None:
        if isinstance(event, Log) and event.level in ("warn", "error"):
            self.invocation.output.warn(event.text)

    def _end(self, answer: Answer, done: Done, ready: Ready, load: Load) -> int:
        given, output = self.invocation.given, self.invocation.output
        stopped = self.interrupts.exit_code
        if output.json:
            head = {"model": load.name or ready.model, "revision": ready.revision}
            fields = {**head, **answer.fields(), **stats.json_fields(done)}
            self.sink.stream.write(document("run", fields))
        elif given["extract"] or given["extract_last"]:
            if not stopped:
                self._write_block(answer.text, last=given["extract_last"])
        elif given["no_stream"]:
            self._write_text(answer.text)
        if given["stats"]:
            lines = [stats.stats_line(done, ready), stats.decisions_line(done)]
            lines += [] if output.verbose else [stats.memory_line(ready)]
            output.err.write("".join(f"{line}\n" for line in lines if line))
        self.sink.complete = not stopped
        if stopped or done.reason == "cancelled":
            return stopped or 130
        return self._cut_off(done)

    def _write_text(self, text: str) -> None:
        ending = "\n" if text and not text.endswith("\n") else ""
        self.sink.stream.write(self.sink.stream.safe(text) + ending)

    def _write_block(self, text: str, *, last: bool) -> None:
        blocks = code_blocks(text)
        if not blocks:
            raise ExtractError(
                "the answer has no fenced code block",
                why=f"it is {len(text):,} characters of other text",
                fix=["ask for a code block, or leave --extract out"],
            )
        self._write_text(blocks[-1 if last else 0])

    def _cut_off(self, done: Done) -> int:
        reasons = {
            "length": "the answer reached --max-tokens",
            "context_full": "the answer filled the context",
        }
        if done.reason not in reasons:
            return 0
        self.invocation.output.warn(f"{reasons[done.reason]} and is cut off")
        return EXIT_CUT_OFF if self.invocation.given["fail_on_length"] else 0


def load_command(
    invocation: Invocation, word: str | None, interrupts: Interrupts
) -> Load:
    """What to load for the model meant by ``word``; a missing demo is built first.

    Raises:
        SplashError: no such model, or options that exclude each other.
        KeyboardInterrupt: somebody asked to stop the build.
    """
    options = invocation.load_options()
    if invocation.given["replay"]:
        return Load(model="replay", options=options)
    found = find_or_build(invocation, word, interrupts)
    return Load(
        model=str(found.path),
        name=found.name,
        revision=found.revision,
        options=options,
    )


def _request(invocation: Invocation, question: Question) -> Generate:
    given = invocation.given
    return Generate(
        id=REQUEST_ID,
        messages=question.messages,
        prompt=question.prompt,
        sampling=invocation.sampling(),
        max_tokens=given["max_tokens"],
        prefill_only=bool(given["prefill_only"]),
    )


@contextlib.contextmanager
def connected(invocation: Invocation) -> Iterator[EngineClient]:
    """An engine in this process or a replay; ended at once when something fails."""
    client = _connect(invocation)
    try:
        yield client
    except BaseException:
        client.close(now=True)
        raise
    client.close()


def _connect(invocation: Invocation) -> EngineClient:
    given = invocation.given
    if given["replay"]:
        from splashpy.client.replay import ReplayClient

        return ReplayClient(Path(given["replay"]), speed=replay_speed(given["speed"]))
    from splashpy.client.in_process import InProcessClient

    return InProcessClient()


def replay_speed(speed: float | None) -> float:
    """1 plays in real time; 0 does not wait at all."""
    return 1.0 if speed is None else speed or math.inf
