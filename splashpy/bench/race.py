# SPDX-License-Identifier: Apache-2.0
"""Plain decoding and decoding with drafts, side by side on one machine.

Both write the answer to the same prompt. They take turns cycle by cycle, and the arm
that has used less time goes next, so each is as far as it would be alone at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter

from splashpy.bench.session import Session
from splashpy.dialogue.detokenizer import StreamDetokenizer
from splashpy.engine.request import EngineEvent, TokensCommitted


@dataclass(slots=True)
class Runner:
    """One arm of a race.

    Attributes:
        name: ``plain`` or ``drafts``.
        text: what it wrote so far.
        token_ids: its tokens.
        seconds: time it used.
        finished: it has nothing more to write.
    """

    name: str
    events: Iterator[EngineEvent]
    detokenizer: StreamDetokenizer
    text: str
    token_ids: list[int]
    seconds: float = 0.0
    finished: bool = False

    def step(self) -> None:
        """Run one cycle or one prefill chunk."""
        started = perf_counter()
        event = next(self.events, None)
        self.seconds += perf_counter() - started
        if event is None:
            self.text += self.detokenizer.flush()
            self.finished = True
        elif isinstance(event, TokensCommitted):
            self.token_ids += event.token_ids
            self.text += "".join(map(self.detokenizer.add, event.token_ids))


def race(
    session: Session,
    token_ids: tuple[int, ...],
    *,
    max_tokens: int,
    cancelled: Callable[[], bool],
) -> Iterator[tuple[Runner, Runner]]:
    """Run both arms to their end; yields (plain, drafts) after every turn."""
    runners = [
        Runner(
            name,
            session.events(
                token_ids, drafter, max_tokens=max_tokens, cancelled=cancelled
            ),
            StreamDetokenizer(session.speech.tokenizer),
            "",
            [],
        )
        for name, drafter in (("plain", session.plain), ("drafts", session.drafter))
    ]
    plain, drafts = runners
    while running := [runner for runner in runners if not runner.finished]:
        min(running, key=lambda runner: runner.seconds).step()
        yield plain, drafts
