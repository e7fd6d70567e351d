# SPDX-License-Identifier: Apache-2.0
"""The calls of one answer on their way out: numbered, typed, as JSON."""

from __future__ import annotations

from splashpy.dialogue.tools.events import (
    CallArguments,
    CallEnd,
    CallStart,
    ToolEvent,
)
from splashpy.dialogue.tools.rewriting import escaped, quoted
from splashpy.dialogue.tools.schema import ToolSchemas, rewritten, verbatim, written


class CallWriter:
    """Writes calls as events; the readers say what the model wrote.

    Args:
        schemas: of the offered tools.

    Attributes:
        events: what was written and not yet taken away.
        finished: calls that are complete.
        open: a call has begun and not ended.
    """

    def __init__(self, schemas: ToolSchemas) -> None:
        self.schemas = schemas
        self.events: list[ToolEvent] = []
        self.finished = 0
        self.open = False
        self._index = -1
        self._name = ""
        self._keys: set[str] = set()

    def start(self, name: str, call_id: str = "") -> None:
        """Begin a call; one that is still open ends complete."""
        if self.open:
            self.end()
        self._index += 1
        self._name, self._keys, self.open = name, set(), True
        self.events.append(CallStart(self._index, name, call_id))

    def knows(self, key: str) -> bool:
        """Whether this argument was written already; the first one counts."""
        return key in self._keys

    def streams(self, key: str) -> bool:
        """Whether a text is the value of this argument as it stands."""
        return verbatim(self.schemas.types(self._name, key))

    def takes_text(self, key: str) -> bool:
        """Whether a string may be the value of this argument."""
        types = self.schemas.types(self._name, key)
        return types is None or "string" in types

    def takes_json(self, key: str) -> bool:
        """Whether the value of this argument has to be JSON: no string may be it."""
        return not self.takes_text(key)

    def key(self, key: str) -> None:
        """Begin an argument."""
        self.raw(f"{',' if self._keys else '{'}{quoted(key)}:")
        self._keys.add(key)

    def text(self, key: str, text: str) -> None:
        """A whole argument written as plain text."""
        self.key(key)
        self.raw(written(text, self.schemas.types(self._name, key)))

    def typed(self, key: str, value: str) -> str:
        """Compact JSON of a string or a scalar in the type the schema asks for."""
        return rewritten(value, self.schemas.types(self._name, key))

    def piece(self, text: str) -> None:
        """Part of the text inside a JSON string."""
        if text:
            self.raw(escaped(text))

    def raw(self, text: str) -> None:
        """Part of the JSON of the arguments, as it is."""
        self.events.append(CallArguments(self._index, text))

    def end(self) -> None:
        """End the call with its arguments whole."""
        self.raw("}" if self._keys else "{}")
        self._close(complete=True)
        self.finished += 1

    def abandon(self) -> None:
        """End the call, if one is open, with what there is of its arguments."""
        if self.open:
            self._close(complete=False)

    def take(self) -> list[ToolEvent]:
        """What was written since the last time."""
        taken, self.events = self.events, []
        return taken

    def _close(self, *, complete: bool) -> None:
        self.open = False
        self.events.append(CallEnd(self._index, complete))
