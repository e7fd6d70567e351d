# SPDX-License-Identifier: Apache-2.0
"""Events of one request become text on a stream, and a whole answer at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splashpy.cli.output import Stream
from splashpy.cli.progress import ProgressLine
from splashpy.protocol import Cycle, Done, Event, Piece, Prefill, Queued, ToolDelta

_MEANING = {"a": "accepted", "t": "target", "l": "lookup"}
_PROMPT_NOTICE_MS = 1000.0  # a shorter wait needs no explanation


@dataclass(slots=True)
class Answer:
    """Everything one request produced.

    Attributes:
        text: the content.
        reasoning: what the model thought before it.
        tool_calls: by index, with ``id``, ``name`` and ``arguments``.
        done: the end; None while it runs.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: dict[int, dict[str, str]] = field(default_factory=dict)
    done: Done | None = None

    def take(self, event: Event) -> None:
        """Add what an event brings."""
        if isinstance(event, Cycle):
            for piece in event.pieces:
                if piece.channel == "c":
                    self.text += piece.text
                elif piece.channel == "r":
                    self.reasoning += piece.text
        elif isinstance(event, ToolDelta):
            call = self.tool_calls.setdefault(
                event.index, {"id": "", "name": "", "arguments": ""}
            )
            call["id"] += event.call_id
            call["name"] += event.name
            call["arguments"] += event.args_delta
        elif isinstance(event, Done):
            self.done = event

    def fields(self) -> Mapping[str, Any]:
        """``text``, ``reasoning`` and ``tool_calls`` of a JSON result."""
        calls = [self.tool_calls[index] for index in sorted(self.tool_calls)]
        return {"text": self.text, "reasoning": self.reasoning, "tool_calls": calls}


class Display:
    """Writes an answer while it arrives."""

    def __init__(
        self,
        out: Stream | None,
        err: Stream | None,
        progress: ProgressLine,
        *,
        draft_colors: bool = False,
    ):
        """Nothing is written yet.

        Args:
            out: where content goes; None keeps it for later.
            err: where reasoning goes; None hides it.
            progress: shows a wait for the prompt.
            draft_colors: colour each token by where it came from.
        """
        self._out = out
        self._err = err
        self._progress = progress
        self._colors = draft_colors
        self._thinking = False
        self._last = ""

    def show(self, event: Event) -> None:
        """Write what an event brings.

        Raises:
            BrokenPipeError: nobody reads the content any more.
        """
        if isinstance(event, Prefill) and event.elapsed_ms > _PROMPT_NOTICE_MS:
            self._progress.prompt(event.processed, event.total)
        elif isinstance(event, Queued) and event.position:
            self._progress.waiting(event.position)
        elif isinstance(event, Cycle):
            self._progress.close()
            for piece in event.pieces:
                self._piece(piece)

    def finish(self) -> None:
        """End the last line of content, if it lacks its end."""
        self._progress.close()
        self._end_thinking()
        if self._out is not None and self._last and not self._last.endswith("\n"):
            self._out.write("\n")

    def _piece(self, piece: Piece) -> None:
        if not piece.text:
            return
        if piece.channel == "r" and self._err is not None:
            self._thinking = True
            self._err.write(self._err.paint(self._err.safe(piece.text), "dim"))
        elif piece.channel == "c" and self._out is not None:
            self._end_thinking()
            text = self._out.safe(piece.text)
            self._last = text
            if self._colors:
                text = self._out.paint(text, _MEANING[piece.kind])
            self._out.write(text)

    def _end_thinking(self) -> None:
        if self._thinking and self._err is not None:
            self._err.write("\n")
        self._thinking = False
