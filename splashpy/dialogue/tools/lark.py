# SPDX-License-Identifier: Apache-2.0
"""Rules of a grammar on their way into Lark's notation, as llguidance reads it.

Control tokens stand by their ids, so that no spelling of ordinary tokens passes for
one. A plain value and the text that ends it are one terminal: a lexer that takes the
longest match would read the beginning of that text as part of the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

ANY = "/(?s:.*)/"
_MOST_MEMBERS = 60  # of 64 bits, one for each member that was written


class UnwritableError(ValueError):
    """A notation has no way to write something."""


class LarkRules:
    """Collects rules; equal bodies are one rule.

    Args:
        controls: ids of control tokens by their text.
    """

    def __init__(self, controls: Mapping[str, int]) -> None:
        self._controls = controls
        longest = sorted(map(re.escape, controls), key=len, reverse=True)
        self._control = re.compile(f"({'|'.join(longest)})") if longest else None
        self._names: dict[str, str] = {}
        self._lines: list[str] = []

    def rule(self, body: str) -> str:
        """The name of the rule with this body."""
        return self._named("r", body)

    def terminal(self, body: str) -> str:
        """The name of the terminal with this body, in which no rule may stand."""
        return self._named("T", body)

    def text(self, start: str) -> str:
        """The whole grammar, which begins with the words ``start``."""
        return "\n".join([f"start: {start}", *self._lines])

    def said(self, text: str) -> str:
        """Words for exactly this text."""
        found = [part for part in self._parts(text) if part]
        return " ".join(self._word(part) for part in found) or '""'

    def plain(self, tail: str, never: Iterable[str], shape: str = ANY) -> str:
        """Words for any text that is of a shape, and then ``tail``.

        Args:
            tail: what ends the text.
            never: what the text does not hold anywhere.
            shape: a terminal's body.
        """
        bad = self.terminal(f"{ANY} ({' | '.join(map(quoted, never))}) {ANY}")
        shaped = "" if shape == ANY else f"{self.terminal(shape)} & "
        value = self.terminal(f"{shaped}{ANY} & ~{bad}")
        first, *rest = self._parts(tail)
        whole = self.terminal(f"{value} {quoted(first)}") if first else value
        return " ".join([whole, *(self._word(part) for part in rest if part)])

    def after_text(
        self, opener: str, never: Sequence[str], words: str, controls: Collection[int]
    ) -> str:
        """Words for any text, which may come to ``opener`` and then to ``words``.

        Args:
            opener: ordinary text.
            never: what the text does not hold anywhere.
            words: what follows the opener.
            controls: tokens that may stand in the text.
        """
        bad = self.terminal(f"{ANY} ({' | '.join(map(quoted, never))}) {ANY}")
        free = self.terminal(f"/(?s:.+)/ & ~{bad}")
        end = f"( {free} | {self.plain(opener, never)} {words} )?"
        if not controls:
            return end
        return f"( {free}? <[{','.join(map(str, sorted(controls)))}]> )* {end}"

    def schema(self, schema: Mapping[str, Any], options: Mapping[str, Any]) -> str:
        """Words for a JSON value of a schema."""
        text = json.dumps({**schema, "x-guidance": options}, ensure_ascii=False)
        return self.rule(f"%json {text}")

    def members(
        self, needed: Sequence[str], others: Sequence[str], separator: str = ""
    ) -> str:
        """Words for members in any order, each once at most, the needed ones once.

        Raises:
            UnwritableError: there are too many of them.
        """
        words = (*needed, *others)
        if len(words) > _MOST_MEMBERS:
            raise UnwritableError(
                f"{len(words)} arguments; {_MOST_MEMBERS} can be kept"
            )
        name = f"m{len(self._lines)}"
        ended = f'"" %if is_ones([0:{len(needed)}])' if needed else '""'
        between = f"{quoted(separator)} " if separator else ""
        later = self._choices(words, f"{name}b" if between else name)
        if not between:
            self._lines.append(f"{name}::_: {' | '.join([ended, *later])}")
            return f"{name}::0x0"
        first = later if needed else ['""', *later]
        later = [f"{between}{choice}" for choice in later]
        self._lines.append(f"{name}::_: {' | '.join(first)}")
        self._lines.append(f"{name}b::_: {' | '.join([ended, *later])}")
        return f"{name}::0x0"

    def _choices(self, words: Sequence[str], name: str) -> list[str]:
        return [
            f"{self.rule(word)} {name}::set_bit({bit}) %if bit_clear({bit})"
            for bit, word in enumerate(words)
        ]

    def _named(self, kind: str, body: str) -> str:
        if body not in self._names:
            name = self._names[body] = f"{kind}{len(self._lines)}"
            self._lines.append(f"{name}: {body}")
        return self._names[body]

    def _parts(self, text: str) -> list[str]:
        """Ordinary text and control tokens in turn, beginning with text."""
        return self._control.split(text) if self._control else [text]

    def _word(self, part: str) -> str:
        token_id = self._controls.get(part)
        return quoted(part) if token_id is None else f"<[{token_id}]>"


def quoted(text: str) -> str:
    """A string of the notation."""
    return json.dumps(text)
