# SPDX-License-Identifier: Apache-2.0
"""Up to where other prompts will begin with the tokens of this one.

Two places matter to the prefix cache. The system prompt and the tools come again in
every conversation with them. And the next turn of this conversation repeats the prompt
up to its *stable boundary*: templates write the last tokens, the opening of the
answer, in another way once the turn is complete, and many drop old reasoning. Both are
measured by rendering, since templates promise nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from splashpy.cache.chain import pack, shared_length
from splashpy.cache.plan import Marks
from splashpy.dialogue.prompt import build_prompt
from splashpy.dialogue.template import ChatTemplate
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.errors import SplashError

UNKNOWN_TAIL = 11
"""Tokens that may change where a template cannot be measured, or not sensibly."""

_V = TypeVar("_V")

_LONGEST_TAIL = 64
_SYSTEMS = 4  # system prompts remembered; one may be long to tokenize
_TAILS = 16  # remembered, one for each set of options

_QUESTION = {"role": "user", "content": "Name one colour."}
_FOLLOW_UP = {"role": "user", "content": "And another one."}
_REPLIES = (
    {"role": "assistant", "content": "Red."},
    {"role": "assistant", "content": "Red.", "reasoning_content": "An easy one."},
)


class Boundaries:
    """Measures the places of prompts, and remembers what it measured.

    Args:
        tokenizer: of the target.
        template: of the target.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self._tokenizer, self._template = tokenizer, template
        self._tails: dict[str, int] = {}
        self._systems: dict[str, tuple[int, ...]] = {}

    def marks(
        self,
        token_ids: Sequence[int],
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Marks:
        """The places of one prompt.

        Args:
            token_ids: the prompt that :func:`build_prompt` made of the rest.
            messages: OpenAI message objects.
            tools: OpenAI tool objects.
            options: variables of the template, such as those of an effort.
        """
        options = options or {}
        system = self._system(messages, tools, options)
        return Marks(
            system=shared_length(pack(system), pack(token_ids)) if system else 0,
            unstable=self._unstable(options),
        )

    def _unstable(self, options: Mapping[str, Any]) -> int:
        key = _key(options)
        found = self._tails.pop(key, None)
        if found is None:
            found = self._measured_tail(options)
        _remember(self._tails, key, found, _TAILS)
        return found

    def _measured_tail(self, options: Mapping[str, Any]) -> int:
        try:
            asked = pack(self._ids([_QUESTION], options=options))
            turns = [[_QUESTION, reply, _FOLLOW_UP] for reply in _REPLIES]
            kept = [
                shared_length(asked, pack(self._ids(turn, options=options)))
                for turn in turns
            ]
        except SplashError:
            return UNKNOWN_TAIL
        tail = len(asked) - min(kept)
        return max(tail, 1) if tail <= _LONGEST_TAIL else UNKNOWN_TAIL

    def _system(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
    ) -> tuple[int, ...]:
        """Tokens of the system prompt and the tools, whatever a user says then."""
        leading = _leading_system(messages)
        if not leading and not tools:
            return ()
        key = _key([leading, list(tools), options])
        found = self._systems.pop(key, None)
        if found is None:
            found = self._measured_system(leading, tools, options)
        _remember(self._systems, key, found, _SYSTEMS)
        return found

    def _measured_system(
        self,
        leading: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
    ) -> tuple[int, ...]:
        try:
            one, other = (
                self._ids([*leading, {**_QUESTION, "content": text}], tools, options)
                for text in ("", "a")
            )
        except SplashError:
            return ()
        return one[: shared_length(pack(one), pack(other))]

    def _ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
    ) -> tuple[int, ...]:
        return build_prompt(
            self._tokenizer, self._template, messages, tools=tools, options=options
        ).token_ids


def _key(value: object) -> str:
    return json.dumps(value, default=str, sort_keys=True)


def _remember(known: dict[str, _V], key: str, value: _V, most: int) -> None:
    """Keep a value; the latest comes last, the oldest goes first."""
    known[key] = value
    while len(known) > most:
        del known[next(iter(known))]


def _leading_system(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    leading = []
    for message in messages:
        if message.get("role") not in ("system", "developer"):
            break
        leading.append(message)
    return leading
