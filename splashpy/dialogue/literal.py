# SPDX-License-Identifier: Apache-2.0
"""Keeping what people write apart from what the template writes.

A chat template mixes its own control strings (``<|im_end|>``) with the text of the
messages, and the result no longer tells which is which. So the messages pass through
``hide`` first: a control string in them becomes a stand-in. In the rendered prompt
every control string is then the template's own; ``seal`` gives those names that no
text can contain and puts the hidden strings back. A tokenizer whose control tokens
carry these names reads the result: the template's control strings become control ids,
the same characters in a message become ordinary tokens, and everything else is
tokenized as if nothing had happened.

Stand-ins and names consist of lower-case letters and digits, so no template filter
alters them, and contain a random part, so nobody can write one.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any


class ControlStrings:
    """The control strings of one tokenizer, with their private names.

    Args:
        strings: what becomes a control id when the template writes it.
        also_hidden: what else in a message a template might take for its own.
    """

    def __init__(self, strings: Iterable[str], also_hidden: Iterable[str] = ()) -> None:
        self._strings = frozenset(strings)
        self._hidden = self._strings.union(also_hidden)
        self._longest = max(map(len, self._hidden), default=0)
        self._heads = {s[:i] for s in self._hidden for i in range(1, len(s))}
        self._tails = {s[i:] for s in self._hidden for i in range(1, len(s))}
        self._message = re.compile(_any_of(self._hidden))
        self._mark = f"zq{secrets.token_hex(8)}"
        self._rendered = re.compile(
            f"{self._mark}h((?:[0-9a-f]{{2}})+)z|({_any_of(self._strings)})"
        )

    def __contains__(self, text: str) -> bool:
        return text in self._strings

    def name(self, control: str) -> str:
        """The private name of a control string."""
        return f"{self._mark}c{control.encode().hex()}z"

    def hide(self, text: str) -> str:
        """Replace every control string in ``text`` by a stand-in."""
        return self._message.sub(lambda match: self._stand_in(match[0]), text)

    def hide_all(self, value: Any, *, free: bool = False) -> Any:
        """A copy of a JSON value with every string hidden, keys included.

        ``free``: values are text somebody made up, so ``hide_free`` is for them.
        """
        if isinstance(value, str):
            return self.hide_free(value) if free else self.hide(value)
        if isinstance(value, Mapping):
            return {
                self.hide_all(key): self.hide_all(item, free=free)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.hide_all(item, free=free) for item in value]
        return value

    def hide_free(self, text: str) -> str:
        """``hide``, and replace edges that a neighbour could complete.

        A message ending in ``<|im_`` must not become a control string when the
        template continues with ``end|>``. White space at the edges is left alone,
        since templates strip it.
        """
        body = text.strip()
        head, tail = self._head_length(body), self._tail_length(body)
        if not head and not tail:
            return self.hide(text)
        if head + tail >= len(body):
            inner = self._stand_in(body)
        else:
            inner = "".join(
                (
                    self._stand_in(body[:head]),
                    self.hide(body[head : len(body) - tail]),
                    self._stand_in(body[len(body) - tail :]),
                )
            )
        start = text.find(body)
        return text[:start] + inner + text[start + len(body) :]

    def seal(self, rendered: str) -> str:
        """The rendered prompt with control strings named and hidden strings back."""
        return self._rendered.sub(
            lambda match: _shown(match[1]) if match[1] else self.name(match[2]),
            rendered,
        )

    def reveal(self, rendered: str) -> str:
        """The rendered prompt as a person would read it."""
        return self._rendered.sub(
            lambda match: _shown(match[1]) if match[1] else match[2], rendered
        )

    def _stand_in(self, text: str) -> str:
        return f"{self._mark}h{text.encode().hex()}z" if text else ""

    def _head_length(self, text: str) -> int:
        longest = min(self._longest, len(text))
        if len(text) < self._longest and self._is_inside(text):
            return len(text)
        return next((n for n in range(longest, 0, -1) if text[:n] in self._tails), 0)

    def _tail_length(self, text: str) -> int:
        longest = min(self._longest, len(text))
        return next((n for n in range(longest, 0, -1) if text[-n:] in self._heads), 0)

    def _is_inside(self, text: str) -> bool:
        return bool(text) and any(text in hidden for hidden in self._hidden)


def _shown(stand_in: str) -> str:
    return bytes.fromhex(stand_in).decode()


def _any_of(strings: Iterable[str]) -> str:
    """A pattern for the longest of ``strings`` at a place.

    Common beginnings are shared: vocabularies with thousands of ``<unused…>`` tokens
    would otherwise be tried one by one at every ``<``.
    """
    tree: dict[str, Any] = {}
    for string in strings:
        node = tree
        for character in string:
            node = node.setdefault(character, {})
        node[""] = {}
    return _branches(tree) if tree else "(?!)"


def _branches(node: dict[str, Any]) -> str:
    arms = [re.escape(c) + _branches(rest) for c, rest in sorted(node.items()) if c]
    if not arms:
        return ""
    joined = "|".join(arms)
    if "" in node:
        return f"(?:{joined})?"
    return joined if len(arms) == 1 else f"(?:{joined})"
