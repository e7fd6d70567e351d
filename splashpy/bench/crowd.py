# SPDX-License-Identifier: Apache-2.0
"""Ask every question while others are being answered.

A round is all questions, asked by so many people at once who each ask the next question
when theirs is answered. Rounds of all arms follow each other and turn their order from
trial to trial, as the questions of ``bench.py`` do. All figures are those of the
listener.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter, sleep
from typing import Any

from splashpy.bench.leg import Leg, Place, kept_counts
from splashpy.bench.suites import Question
from splashpy.bench.talker import Heard, Talker, Wish
from splashpy.errors import InternalError, SplashError
from splashpy.protocol import Spec

_WAIT_SLICE = 0.1  # seconds between two looks at Ctrl-C


@dataclass(frozen=True, slots=True)
class CrowdArm:
    """A way to be asked.

    Attributes:
        name: of the way: ``draft``, ``plain`` or ``url``.
        people: how many ask at once.
    """

    name: str
    people: int

    def __str__(self) -> str:
        return self.name if self.people == 1 else f"{self.name} x{self.people}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """What to measure.

    Attributes:
        talker: who answers.
        arms: in the order of the first trial.
        trials: how often each question is asked.
        wish: how answers are to be written.
        cooldown: seconds of rest before a round.
        stopping: asked all the time.
    """

    talker: Talker
    arms: tuple[CrowdArm, ...]
    trials: int = 3
    wish: Wish
    cooldown: float = 0.0
    stopping: Callable[[], bool] = lambda: False

    def run(
        self, questions: Sequence[Question], done: Collection[Place] = ()
    ) -> Iterator[list[Leg]]:
        """Measure; yields the legs of a whole trial.

        A wish to stop ends the run; the trial under way is lost.

        Args:
            questions: of every round.
            done: places that were measured before; their trials are left out.

        Raises:
            SplashError: there is no answer.
        """
        finished = {place.trial for place in done}
        trials = [trial for trial in range(self.trials) if trial not in finished]
        if trials and not self.stopping():
            self.talker.ask(
                [_said("user", questions[0].turns[0])], self.wish, self.stopping
            )
        for trial in trials:
            arms = self.arms if trial % 2 == 0 else tuple(reversed(self.arms))
            legs: list[Leg] = []
            for arm in arms:
                if not self._rest():
                    return
                legs += self._round(questions, arm, trial)
            if self.stopping():
                return
            yield legs

    def _rest(self) -> bool:
        end = perf_counter() + self.cooldown
        while (left := end - perf_counter()) > 0:
            if self.stopping():
                return False
            sleep(min(left, _WAIT_SLICE))
        return not self.stopping()

    def _round(
        self, questions: Sequence[Question], arm: CrowdArm, trial: int
    ) -> list[Leg]:
        """Every question once; what is answered, where somebody wished to stop."""
        order = questions if trial % 2 == 0 else list(reversed(questions))
        turn = _Round(self, arm, trial, order)
        people = [
            threading.Thread(target=turn.ask, name="splashpy-bench-person", daemon=True)
            for _ in range(arm.people)
        ]
        for each in people:
            each.start()
        for each in people:
            each.join()
        if turn.failed:
            raise turn.failed[0]
        return turn.legs


class _Round:
    """What the people of one round share.

    Attributes:
        legs: of what was answered.
        failed: why somebody got no answer.
    """

    def __init__(
        self, crowd: Crowd, arm: CrowdArm, trial: int, questions: Sequence[Question]
    ):
        self._crowd, self._arm, self._trial = crowd, arm, trial
        self._waiting: queue.SimpleQueue[Question] = queue.SimpleQueue()
        for question in questions:
            self._waiting.put(question)
        self._began = perf_counter()
        self.legs: list[Leg] = []
        self.failed: list[SplashError] = []

    def ask(self) -> None:
        """Be one of the people: ask until no question is left."""
        try:
            while not self._stopping():
                self.legs.extend(self._converse(self._waiting.get_nowait()))
        except queue.Empty:
            return
        except SplashError as error:
            self.failed.append(error)
        except Exception as error:  # noqa: BLE001 - told by whoever waits
            self.failed.append(InternalError(f"asking failed: {error!r}"))

    def _stopping(self) -> bool:
        return bool(self.failed) or self._crowd.stopping()

    def _converse(self, question: Question) -> Iterator[Leg]:
        messages: list[dict[str, Any]] = []
        wish = replace(self._crowd.wish, draft=self._arm.name != "plain")
        for turn, text in enumerate(question.turns):
            messages.append(_said("user", text))
            heard = self._crowd.talker.ask(messages, wish, self._stopping)
            if heard is None:
                return
            messages.append(_said("assistant", heard.text))
            asked = self._arm, self._trial
            yield _leg(question, turn, asked, self._began, heard)


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _leg(
    question: Question,
    turn: int,
    asked: tuple[CrowdArm, int],
    began: float,
    heard: Heard,
) -> Leg:
    arm, trial = asked
    spec: Spec = heard.spec
    return Leg(
        suite=question.suite,
        prompt=question.id,
        kind=question.kind,
        turn=turn,
        trial=trial,
        arm=str(arm),
        people=arm.people,
        began_seconds=heard.began - began,
        prompt_tokens=heard.prompt_tokens,
        completion_tokens=heard.completion_tokens,
        prefill_seconds=heard.first - heard.began,
        decode_seconds=heard.last - heard.first,
        cycles=spec.cycles,
        drafted=spec.drafted,
        accepted=spec.accepted,
        committed=spec.hist,
        kept=kept_counts(
            spec.drafter_cycles + spec.lookup_cycles, spec.accepted_per_position
        ),
        drafted_per_position=spec.drafted_per_position,
        accepted_per_position=spec.accepted_per_position,
    )
