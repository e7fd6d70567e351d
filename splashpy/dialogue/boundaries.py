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
from typing import Any

from splashpy.cache.chain import pack, shared_length
from splashpy.cache.plan import Marks
from splashpy.dialogue.prompt import build_prompt
from splashpy.dialogue.template import ChatTemplate
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.errors import SplashError

UNKNOWN_TAIL = 11
"""Tokens that may change where a template cannot be measured, or not sensibly."""

_LONGEST_TAIL = 64
_SYSTEMS = 4  # system prompts remembered; one may be long to tokenize

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
        self._tails: dict[str | None, int] = {}
        self._systems: dict[str, tuple[int, ...]] = {}

    def marks(
        self,
        token_ids: Sequence[int],
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        effort: str | None = None,
    ) -> Marks:
        """The places of one prompt.

        Args:
            token_ids: the prompt that :func:`build_prompt` made of the rest.
            messages: OpenAI message objects.
            tools: OpenAI tool objects.
            effort: a reasoning effort; None is the template's own.
        """
        system = self._system(messages, tools, effort)
        return Marks(
            system=shared_length(pack(system), pack(token_ids)) if system else 0,
            unstable=self._unstable(effort),
        )

    def _unstable(self, effort: str | None) -> int:
        if effort not in self._tails:
            self._tails[effort] = self._measured_tail(effort)
        return self._tails[effort]

    def _measured_tail(self, effort: str | None) -> int:
        try:
            asked = pack(self._ids([_QUESTION], effort=effort))
            turns = [[_QUESTION, reply, _FOLLOW_UP] for reply in _REPLIES]
            kept = [
                shared_length(asked, pack(self._ids(turn, effort=effort)))
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
        effort: str | None,
    ) -> tuple[int, ...]:
        """Tokens of the system prompt and the tools, whatever a user says then."""
        leading = _leading_system(messages)
        if not leading and not tools:
            return ()
        key = json.dumps([leading, list(tools), effort], default=str)
        found = self._systems.pop(key, None)
        if found is None:
            found = self._measured_system(leading, tools, effort)
        self._systems[key] = found  # the latest comes last
        while len(self._systems) > _SYSTEMS:
            del self._systems[next(iter(self._systems))]
        return found

    def _measured_system(
        self,
        leading: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        effort: str | None,
    ) -> tuple[int, ...]:
        try:
            one, other = (
                self._ids([*leading, {**_QUESTION, "content": text}], tools, effort)
                for text in ("", "a")
            )
        except SplashError:
            return ()
        return one[: shared_length(pack(one), pack(other))]

    def _ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        effort: str | None = None,
    ) -> tuple[int, ...]:
        return build_prompt(
            self._tokenizer, self._template, messages, tools=tools, effort=effort
        ).token_ids


def _leading_system(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    leading = []
    for message in messages:
        if message.get("role") not in ("system", "developer"):
            break
        leading.append(message)
    return leading
