# SPDX-License-Identifier: Apache-2.0
"""One message answered twice, with drafts and without: is it faster, is it the same?"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import takewhile

from splashpy.chat import meters
from splashpy.chat.entries import Notice, Problem, Reply, UserMessage
from splashpy.protocol import Generate


@dataclass(slots=True)
class Race:
    """What is raced.

    Attributes:
        question: that both answer.
        laps: the answers so far, the one with drafts first.
    """

    question: UserMessage
    laps: list[Reply] = field(default_factory=list)

    def lap(self, command: Generate) -> Generate:
        """The next request: the first one with drafts, the second without."""
        sampling = command.sampling
        if sampling.seed is None:  # or chance would decide, not the drafts
            sampling = replace(sampling, seed=0)
        return replace(command, draft=not self.laps, sampling=sampling)

    def notice(self) -> Notice:
        """What came of it. Both laps must be done."""
        return Notice(Problem("", *self.result()), needs_restart=False, remark=True)

    def result(self) -> tuple[str, str]:
        """Speed, then identity, in two sentences. Both laps must be done."""
        rates = [meters.final_rate(lap.done) if lap.done else None for lap in self.laps]
        drafts, plain = rates
        factor = f"{drafts / plain:.2f}x" if drafts and plain else meters.UNKNOWN
        speed = (
            f"race: {meters.format_rate(drafts)} with drafts, "
            f"{meters.format_rate(plain)} without: {factor}"
        )
        return speed, self._identity()

    def _identity(self) -> str:
        first, second = (lap.reasoning + lap.text for lap in self.laps)
        if first == second:
            return f"both wrote the same {len(first):,} characters"
        pairs = zip(first, second, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return (
            f"the same for {same:,} characters, then not: a near tie, or an error; "
            "splashpy verify tells which"
        )
