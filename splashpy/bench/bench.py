# SPDX-License-Identifier: Apache-2.0
"""Answer every question with every arm, one neighbouring pair after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic, sleep
from typing import Any

from splashpy.bench.filling import fill
from splashpy.bench.leg import Leg, Place
from splashpy.bench.lossless import explain
from splashpy.bench.measuring import Measured, measure
from splashpy.bench.schedule import Turn, schedule
from splashpy.bench.session import GREEDY, Draw, Session
from splashpy.bench.suites import Question
from splashpy.drafting.drafter import Drafter

ARMS = ("draft", "plain")
"""Default settings, and the target alone in the same engine."""

_WARM_UP_TOKENS = 16
_WAIT_SLICE = 0.1  # seconds between two looks at Ctrl-C


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What to measure.

    Attributes:
        session: a loaded model.
        arms: names of :data:`ARMS`.
        trials: how often each question is asked.
        max_tokens: of every answer.
        draw: how tokens are chosen; without a seed each trial draws its own texts.
        cooldown: seconds of rest between two answers.
        stopping: asked between two questions, and while resting.
    """

    session: Session
    arms: tuple[str, ...] = ARMS
    trials: int = 3
    max_tokens: int = 128
    draw: Draw = GREEDY
    cooldown: float = 0.0
    stopping: Callable[[], bool] = lambda: False

    def drafter(self, arm: str) -> Drafter:
        """Who proposes in an arm."""
        return self.session.plain if arm == "plain" else self.session.drafter

    def run(
        self, questions: Sequence[Question], done: Collection[Place] = ()
    ) -> Iterator[list[Leg]]:
        """Measure; yields the legs of each question as soon as it is answered.

        A wish to stop ends the run after the question that is being answered.

        Args:
            questions: in the order they are asked.
            done: places that were measured before, and are left out.

        Raises:
            ContextLengthError: a prompt does not fit.
            ModelResultError: the target computed NaN.
        """
        finished = {(place.suite, place.prompt, place.trial) for place in done}
        turns = [
            turn
            for turn in schedule(questions, self.arms, self.trials)
            if (turn.question.suite, turn.question.id, turn.trial) not in finished
        ]
        if turns:
            self._warm_up(turns[0].question)
        for turn in turns:
            if self.stopping():
                return
            legs = self._answer(turn)
            if legs:
                yield legs

    def _warm_up(self, question: Question) -> None:
        """Answer a little with every arm, which compiles what it needs."""
        ids = self.session.prompt_ids(question.turns[0])
        for arm in self.arms:
            measure(self.session, ids, self.drafter(arm), max_tokens=_WARM_UP_TOKENS)

    def _answer(self, turn: Turn) -> list[Leg]:
        """The legs of one question; none where somebody wished to stop in a rest."""
        by_arm: dict[str, list[tuple[Leg, tuple[int, ...], Measured]]] = {}
        for arm in turn.arms:
            if not self._rest():
                return []
            by_arm[arm] = list(self._converse(turn, arm))
        plain = by_arm.get("plain", [])
        legs = []
        for arm in self.arms:
            for index, (leg, ids, ours) in enumerate(by_arm[arm]):
                if arm != "plain" and index < len(plain) and self._comparable:
                    _, their_ids, theirs = plain[index]
                    leg = self._judged(leg, (ids, ours), (their_ids, theirs))
                legs.append(leg)
        return legs

    @property
    def _comparable(self) -> bool:
        """Whether every arm is to write the same text."""
        return self.draw.sampling.greedy or self.draw.seed is not None

    def _judged(
        self,
        leg: Leg,
        ours: tuple[tuple[int, ...], Measured],
        theirs: tuple[tuple[int, ...], Measured],
    ) -> Leg:
        """The leg, with what its text is worth beside plain decoding's."""
        if ours[0] != theirs[0]:  # an earlier turn differed, so the questions do
            return leg
        texts = theirs[1].token_ids, ours[1].token_ids
        found = explain(self.session, ours[0], *texts, self.draw)
        return replace(leg, outcome=found.outcome)

    def _rest(self) -> bool:
        """Let the machine cool down; False when somebody wished to stop meanwhile."""
        end = monotonic() + self.cooldown
        while (left := end - monotonic()) > 0:
            if self.stopping():
                return False
            sleep(min(left, _WAIT_SLICE))
        return True

    def _converse(
        self, turn: Turn, arm: str
    ) -> Iterator[tuple[Leg, tuple[int, ...], Measured]]:
        """Every turn of a question, later ones after this arm's own answers."""
        question, messages = turn.question, list[dict[str, Any]]()
        draw = replace(self.draw, trial=turn.trial)
        for index, text in enumerate(question.turns):
            if question.length:
                text = fill(self.session, text, question.length)
            messages.append({"role": "user", "content": text})
            ids = self.session.conversation_ids(tuple(messages))
            found = measure(
                self.session,
                ids,
                self.drafter(arm),
                max_tokens=self.max_tokens,
                draw=draw,
            )
            yield _leg(turn, index, arm, len(ids), found), ids, found
            said = self.session.speech.tokenizer.decode(list(found.token_ids))
            messages.append({"role": "assistant", "content": said})


def _leg(turn: Turn, index: int, arm: str, prompt_tokens: int, found: Measured) -> Leg:
    counts, question = found.counts, turn.question
    return Leg(
        suite=question.suite,
        prompt=question.id,
        kind=question.kind,
        turn=index,
        trial=turn.trial,
        arm=arm,
        prompt_tokens=prompt_tokens,
        completion_tokens=len(found.token_ids),
        prefill_seconds=found.prefill_seconds,
        decode_seconds=found.decode_seconds,
        host_seconds=found.host_seconds,
        peak_bytes=found.peak_bytes,
        cycles=counts.cycles,
        drafted=counts.drafted,
        accepted=counts.accepted,
        committed=tuple(counts.hist),
        kept=found.kept,
        drafted_per_position=tuple(counts.drafted_per_position),
        accepted_per_position=tuple(counts.accepted_per_position),
    )
