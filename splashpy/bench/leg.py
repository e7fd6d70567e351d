# SPDX-License-Identifier: Apache-2.0
"""One answer of one arm, as it was measured: counts and durations, no rates.

A leg is what ``requests.jsonl`` holds a line of, so a run can be looked into, continued
and summed up again without the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import Any, NamedTuple

SHORTEST_SECONDS = 0.05  # a rate over less than this is noise


class Place(NamedTuple):
    """Where a leg belongs; legs that differ in their arm only are compared."""

    suite: str
    prompt: str
    turn: int
    trial: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One answer.

    Attributes:
        suite, prompt, turn, trial: see :class:`Place`; ``prompt`` is an id.
        kind: of prompt, such as ``code``.
        arm: ``plain``, ``draft`` or ``url``, with the number of people if several.
        people: asked at the same time, this one included.
        began_seconds: when it was asked for, after the first of its round; 0 where
            nobody else asks.
        prompt_tokens: tokens read.
        completion_tokens: tokens written.
        prefill_seconds: start to first token.
        decode_seconds: first token to last.
        host_seconds: processor time of the engine's thread within ``decode_seconds``;
            what MLX computes on other threads is not in it.
        peak_bytes: most memory MLX held meanwhile.
        cycles: passes of the target after the first token.
        drafted, accepted: tokens proposed, and those of them that were kept.
        committed: committed[n - 1] passes committed n tokens.
        kept: passes that drafted, by how many of their drafts were kept.
        drafted_per_position: passes that proposed a draft at position i + 1.
        accepted_per_position: passes that kept it.
        outcome: this text against plain decoding's: ``identical``, ``tie``,
            ``mismatch``; empty where there is nothing to compare with.
    """

    suite: str
    prompt: str
    kind: str = ""
    turn: int = 0
    trial: int
    arm: str
    people: int = 1
    began_seconds: float = 0.0
    prompt_tokens: int
    completion_tokens: int
    prefill_seconds: float
    decode_seconds: float
    host_seconds: float = 0.0
    peak_bytes: int = 0
    cycles: int = 0
    drafted: int = 0
    accepted: int = 0
    committed: tuple[int, ...] = ()
    kept: Mapping[int, int] = field(default_factory=dict)
    drafted_per_position: tuple[int, ...] = ()
    accepted_per_position: tuple[int, ...] = ()
    outcome: str = ""

    @property
    def place(self) -> Place:
        """Where it belongs."""
        return Place(self.suite, self.prompt, self.turn, self.trial)

    @property
    def decode_rate(self) -> float | None:
        """Tokens a second after the first token; None where that is noise."""
        if self.decode_seconds < SHORTEST_SECONDS or self.completion_tokens < 2:
            return None
        return (self.completion_tokens - 1) / self.decode_seconds

    @property
    def end_to_end_rate(self) -> float:
        """Tokens a second from the start on."""
        seconds = self.prefill_seconds + self.decode_seconds
        return self.completion_tokens / seconds if seconds else 0.0

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens a second."""
        seconds = self.prefill_seconds
        return self.prompt_tokens / seconds if seconds else 0.0

    @property
    def tau(self) -> float | None:
        """Acceptance length: tokens a pass, the target's own counted."""
        return (self.completion_tokens - 1) / self.cycles if self.cycles else None

    def fields(self) -> dict[str, Any]:
        """What a line of JSON holds, with the acceptance record beside it."""
        record = asdict(self)
        record["kept"] = {str(count): passes for count, passes in self.kept.items()}
        return {**record, "acceptance": self.acceptance()}

    @classmethod
    def from_fields(cls, record: Mapping[str, Any]) -> Leg:
        """The leg of :meth:`fields`.

        Raises:
            TypeError, ValueError: a field is missing or no such thing.
        """
        known = {each.name for each in fields(cls)}
        values = {name: value for name, value in record.items() if name in known}
        for name, value in values.items():
            if isinstance(value, list):
                values[name] = tuple(value)
        values["kept"] = {int(n): count for n, count in values.get("kept", {}).items()}
        return cls(**values)

    def acceptance(self) -> dict[str, Any] | None:
        """The record of one request that AIPerf's metrics are computed from.

        Only passes that drafted are steps there. None where nothing was drafted.

        Source: ``SpecDecodeAcceptanceRecord`` of ai-dynamo/aiperf.
        """
        steps = sum(self.kept.values())
        if not steps:
            return None
        return {
            "engine": "splashpy",
            "mean_acceptance_length": 1 + self.accepted / steps,
            "draft_acceptance_rate": self.accepted / self.drafted,
            "acceptance_histogram": {str(n): c for n, c in sorted(self.kept.items())},
            "num_accepted_draft_tokens": self.accepted,
            "num_draft_tokens": self.drafted,
            "num_spec_steps": steps,
            "num_spec_tokens": len(self.drafted_per_position),
            "completion_tokens": self.completion_tokens,
        }


def kept_counts(steps: int, accepted_per_position: Sequence[int]) -> dict[int, int]:
    """Passes by how many of their drafts were kept.

    Args:
        steps: passes that drafted.
        accepted_per_position: of them, those that kept the draft at position i + 1.
    """
    at_least = [steps, *accepted_per_position, 0]
    counts = {n: more - less for n, (more, less) in enumerate(pairwise(at_least))}
    return {n: count for n, count in counts.items() if count}


def pairs(legs: list[Leg], ours: str, theirs: str) -> list[tuple[Leg, Leg]]:
    """Legs of two arms at the same place, in the order of the first arm."""
    other = {leg.place: leg for leg in legs if leg.arm == theirs}
    return [
        (leg, other[leg.place])
        for leg in legs
        if leg.arm == ours and leg.place in other
    ]


def summed(counts: list[tuple[int, ...]]) -> list[int]:
    """Sum of lists of counts, the longest deciding the length."""
    total: Counter[int] = Counter()
    for each in counts:
        for position, count in enumerate(each):
            total[position] += count
    return [total[position] for position in range(max(map(len, counts), default=0))]
