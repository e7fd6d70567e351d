# SPDX-License-Identifier: Apache-2.0
"""Questions the engine's text side answers at once, and who waits for the answers.

They change nothing, so one whose engine died is simply asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from splashpy.protocol import Command, Count, Counted, Detokenize, Tokenize, Tokens
from splashpy.server.errors import ApiError

_MOST_DEATHS = 1  # of engines during a question that is asked again

Question = Count | Tokenize | Detokenize
Answer = Counted | Tokens


@dataclass(slots=True)
class _Asked:
    question: Question
    answer: asyncio.Future[Answer]
    deaths: int = 0


class Questions:
    """Those that are open.

    Args:
        send: hands a command to the engine.
    """

    def __init__(self, send: Callable[[Command], None]) -> None:
        self._send = send
        self._asked: dict[str, _Asked] = {}

    def __len__(self) -> int:
        """How many are open."""
        return len(self._asked)

    def __contains__(self, name: str) -> bool:
        """Whether the question of this id is open."""
        return name in self._asked

    def begin(self, question: Question) -> asyncio.Future[Answer]:
        """Keep a question; ``end`` it when its answer is there or unwanted."""
        future = asyncio.get_running_loop().create_future()
        self._asked[question.id] = _Asked(question, future)
        return future

    def end(self, question: Question) -> None:
        """Nobody waits for it any more."""
        self._asked.pop(question.id, None)

    def send_all(self) -> None:
        """A new engine is there: ask it everything."""
        for asked in self._asked.values():
            self._send(asked.question)

    def answer(self, event: Answer) -> None:
        """Hand an answer over."""
        asked = self._asked.get(event.id)
        if asked is not None and not asked.answer.done():
            asked.answer.set_result(event)

    def refuse(self, name: str, error: ApiError) -> None:
        """Hand an error over instead."""
        asked = self._asked[name]
        if not asked.answer.done():
            asked.answer.set_exception(error)

    def refuse_all(self, error: Callable[[], ApiError]) -> None:
        """None will be answered."""
        for name in self._asked:
            self.refuse(name, error())

    def survive(self, error: Callable[[], ApiError]) -> None:
        """The engine died; who sees that twice is told."""
        for name, asked in self._asked.items():
            asked.deaths += 1
            if asked.deaths > _MOST_DEATHS:
                self.refuse(name, error())
