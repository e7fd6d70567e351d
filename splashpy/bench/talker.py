# SPDX-License-Identifier: Apache-2.0
"""Whoever answers a conversation and can be listened to with a stopwatch.

Everything here is seen from outside: when a text came, how long it was. An engine also
counts its passes; another program does not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from splashpy.protocol import Spec

Messages = Sequence[Mapping[str, Any]]
"""OpenAI message objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How answers are to be written.

    Attributes:
        max_tokens: of an answer.
        temperature: 0 is greedy.
        top_k, top_p: what is kept; 0 and 1 keep all.
        seed: of every draw; None leaves it open.
        draft: whether drafts may be made, where that can be asked for.
    """

    max_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    draft: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One answer, by the listener's clock.

    Attributes:
        text: of the answer.
        began: when it was asked for.
        first, last: when the first and the last text came.
        prompt_tokens, completion_tokens: as the other side counts them; 0 where it does
            not.
        spec: what its passes did; zeros where it does not tell.
    """

    text: str
    began: float
    first: float
    last: float
    prompt_tokens: int
    completion_tokens: int
    spec: Spec = field(default_factory=Spec)


class Talker(Protocol):
    """Answers conversations, several at a time from several threads."""

    def ask(
        self, messages: Messages, wish: Wish, stopping: Callable[[], bool]
    ) -> Heard | None:
        """The answer to a conversation; None where somebody wished to stop meanwhile.

        Raises:
            SplashError: there is no answer.
        """
        ...
