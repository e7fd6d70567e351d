# SPDX-License-Identifier: Apache-2.0
"""How the calls of a family look from outside: what a model writes around a value.

``reader`` modules take whatever models make of these; here is the one spelling that is
written for a model, or that it is held to.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JsonObject:
    """All arguments are one JSON object."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """Each argument is a text between two tags; JSON where it is no string.

    Attributes:
        key: what stands before a value; ``{key}`` is its name, ``{type}`` its type.
        tail: what stands after it.
        never: what no value may hold, since it would end there.
    """

    key: str
    tail: str
    never: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Literals:
    """Arguments are literals of a language.

    Attributes:
        key: what stands before a value; ``{key}`` is its name.
        inner_key: the same within an object.
        quote: around strings.
        escapes: a backslash escapes within strings, as in JSON.
        comma: between arguments, items and members.
        words: for true, false and null.
        never: what no string may hold.
    """

    key: str
    inner_key: str
    quote: str
    escapes: bool
    comma: str
    words: tuple[str, str, str]
    never: tuple[str, ...]


Notation = JsonObject | Tagged | Literals


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The texts around the names and the arguments of calls.

    ::

        before NAME after ARGUMENTS end [again NAME after ARGUMENTS end]… close

    Attributes:
        before: up to the first name.
        after: between a name and its arguments; ``{index}`` is the number of the call.
        end: after the arguments.
        again: before the name of a further call; empty: there is one call.
        close: after the last call.
        arguments: how these are written.
        first: number of the first call.
    """

    before: str
    after: str
    end: str
    again: str = ""
    close: str = ""
    arguments: Notation = JsonObject()
    first: int = 0

    def head(self, name: str) -> str:
        """Everything before the arguments of a first call."""
        return self.before + name + self.after.replace("{index}", str(self.first))

    def words(self, name: str = "") -> tuple[str, ...]:
        """The head of a first call, or all that is certain of it without its name.

        Every second text is somebody's, in which no control string counts.
        """
        if not name:
            return (self.before,)
        return (self.before, name, self.head("").removeprefix(self.before))
