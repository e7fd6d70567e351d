# SPDX-License-Identifier: Apache-2.0
"""In which order prompts and arms take turns.

Heat and other programs make a machine slower as time goes by. So the arms of a prompt
follow each other at once, and their order turns with every prompt (A-B-B-A): whatever
drifts hits both alike. Every other trial goes through the prompts backwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from splashpy.bench.suites import Question


@dataclass(frozen=True, slots=True)
class Turn:
    """A question, answered by every arm in this order."""

    trial: int
    question: Question
    arms: tuple[str, ...]


def schedule(
    questions: Sequence[Question], arms: Sequence[str], trials: int
) -> Iterator[Turn]:
    """Every question in every trial."""
    for trial in range(trials):
        numbered = list(enumerate(questions))
        for index, question in numbered if trial % 2 == 0 else reversed(numbered):
            forwards = (trial + index) % 2 == 0
            order = tuple(arms) if forwards else tuple(reversed(arms))
            yield Turn(trial, question, order)
