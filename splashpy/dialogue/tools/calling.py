# SPDX-License-Identifier: Apache-2.0
"""Tool calls of one answer, with what a turn knows beside its text: tokens, choices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.dialogue.tools.events import CallEnd, CallStart, Markup, Prose, ToolEvent
from splashpy.dialogue.tools.formats import ToolFormat
from splashpy.dialogue.tools.parser import ToolCallParser
from splashpy.dialogue.tools.schema import ToolSchemas

_PLACES = 8  # where in the reasoning a call is looked for, from the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a request says about calls.

    Attributes:
        single: the answer ends with its first whole call.
        forced: text the answer begins with, written for the model already.
    """

    single: bool = False
    forced: str = ""


class Calling:
    """Reads the calls of one answer.

    Args:
        tokenizer: of the target.
        form: how it writes calls.
        tools: the offered tools, OpenAI objects.
        choice: what the request says about calls.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        form: ToolFormat,
        tools: Iterable[Mapping[str, Any]],
        choice: Choice | None = None,
    ) -> None:
        self._form = form
        self._schemas = ToolSchemas(tools)
        self._choice = choice or Choice()
        self._markers = {
            token_id: text
            for text in form.texts
            if (token_id := tokenizer.control_id(text)) is not None
        }
        by_token = form.region[0] in self._markers.values()
        self._parser = ToolCallParser(form, self._schemas, by_token=by_token)
        self._reasoning = ""
        self._spoke = False
        self._found = 0

    @property
    def calls(self) -> int:
        """Calls that are complete."""
        return self._parser.calls + self._found

    @property
    def single(self) -> bool:
        """Whether one whole call ends the answer."""
        return self._choice.single

    @property
    def inside(self) -> bool:
        """Whether the next text belongs to a call."""
        return self._parser.inside

    @property
    def holding(self) -> bool:
        """Whether text is held back that may not be part of a call."""
        return self._parser.holding

    def begin(self) -> list[ToolEvent]:
        """Read the text the answer was made to begin with."""
        opener, forced = self._form.region[0], self._choice.forced
        if not forced:
            return []
        rest = forced.removeprefix(opener)
        marked = self._parser.marker(opener) if rest != forced else []
        return self._noted([*marked, *self._parser.feed(rest)])

    def is_marker(self, token_id: int) -> bool:
        """Whether this token is markup of calls, to be given to ``marker``."""
        return token_id in self._markers

    def marker(self, token_id: int) -> list[ToolEvent]:
        """Take a token of the markup."""
        return self._noted(self._parser.marker(self._markers[token_id]))

    def feed(self, text: str) -> list[ToolEvent]:
        """Take text of the answer."""
        return self._noted(self._parser.feed(text))

    def note_reasoning(self, text: str) -> None:
        """Take text of the reasoning, where a call may end up by mistake."""
        self._reasoning += text

    def finish(self, *, cut: bool) -> list[ToolEvent]:
        """The answer ended; ``cut``: not by the model's own will."""
        events = self._noted(self._parser.finish(cut=cut))
        return events if cut or self._spoke else [*events, *self._stranded()]

    def _noted(self, events: list[ToolEvent]) -> list[ToolEvent]:
        self._spoke = self._spoke or any(
            isinstance(event, CallStart)
            or (isinstance(event, Prose) and event.text.strip())
            for event in events
        )
        return events

    def _stranded(self) -> list[ToolEvent]:
        """Calls a model that never left its reasoning ended it with."""
        opener, text = self._form.region[0], self._reasoning
        at = len(text)
        found: list[ToolEvent] = []
        for _ in range(_PLACES):
            at = text.rfind(opener, 0, at)
            if at < 0:
                break
            read = self._whole_calls(text[at:])
            if not read:
                break
            found = read
        self._found = sum(isinstance(event, CallEnd) for event in found)
        return found

    def _whole_calls(self, text: str) -> list[ToolEvent]:
        """The calls a text consists of; none where it holds anything else."""
        parser = ToolCallParser(self._form, self._schemas)
        events = [*parser.feed(text), *parser.finish(cut=True)]
        for event in events:
            prose = isinstance(event, Prose) and event.text.strip()
            unknown = isinstance(event, CallStart) and event.name not in self._schemas
            broken = isinstance(event, CallEnd) and not event.complete
            if prose or unknown or broken:
                return []
        if not parser.calls:
            return []
        return [event for event in events if not isinstance(event, Prose | Markup)]
