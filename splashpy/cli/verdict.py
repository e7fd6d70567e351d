# SPDX-License-Identifier: Apache-2.0
"""What ``splashpy verify`` found, in words, as JSON, and as an error.

A comparison without a single draft would be identical whatever the code does, so it
counts as no proof at all.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from splashpy.errors import LosslessError, SplashError, UsageError
from splashpy.protocol import KvFormat, error_fields

if TYPE_CHECKING:
    from splashpy.bench.distribution import SamplingTest
    from splashpy.bench.lossless import Comparison

_NO_CHANCE = "below 0.001 is no chance"
_WITHOUT = "--no-draft decodes without drafts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything one proof looked at.

    Attributes:
        model: its name.
        draft: the engine's ``DraftState`` as a dictionary.
        texts: the prompts.
        comparisons: greedy, one for each prompt.
        seeded: comparisons of seeded texts, the same number for each prompt in turn.
        kv: how the target kept its keys and values.
        sampled: the test of the distribution; None when it was not asked for.
        strict: a tie counts as a difference.
    """

    model: str
    draft: dict[str, Any]
    texts: Sequence[str]
    comparisons: Sequence[Comparison]
    seeded: Sequence[Comparison] = ()
    kv: KvFormat = "bf16"
    sampled: SamplingTest | None = None
    strict: bool = False

    @property
    def every(self) -> list[Comparison]:
        """All comparisons, the greedy ones first."""
        return [*self.comparisons, *self.seeded]

    @property
    def drafted(self) -> int:
        """Tokens proposed over all texts."""
        return sum(comparison.drafted for comparison in self.every)

    @property
    def accepted(self) -> int:
        """Of those, tokens that were kept."""
        return sum(comparison.accepted for comparison in self.every)

    def fault(self) -> SplashError | None:
        """What is wrong: a difference, or a proof that proves nothing."""
        return self._difference() or self._nothing_drafted()

    def fields(self) -> dict[str, Any]:
        """The JSON document; ``error`` is null where nothing is wrong."""
        fault, sampled = self.fault(), self.sampled
        rows = zip(self.texts, self.comparisons, strict=True)
        each = len(self.seeded) // len(self.texts)
        again = [text for text in self.texts for _ in range(each)]
        seeded = zip(again, self.seeded, strict=True)
        return {
            "model": self.model,
            "draft": self.draft,
            "kv": self.kv,
            "prompts": [_row(text, comparison) for text, comparison in rows],
            "seeded": [_row(text, comparison) for text, comparison in seeded],
            **{name: self._count(name) for name in ("identical", "tie", "mismatch")},
            "drafted": self.drafted,
            "accepted": self.accepted,
            "sampling": sampled and {**asdict(sampled), "passed": sampled.passed},
            "error": fault and error_fields(fault),
        }

    def lines(self) -> list[str]:
        """The result for a person, one line for each test."""
        told = [_told(comparisons) for comparisons in (self.comparisons, self.seeded)]
        told = [line for line in told if line]
        if self.sampled:
            told.append(_sampling_line(self.sampled))
        return told

    def _count(self, outcome: str) -> int:
        return sum(c.outcome == outcome for c in self.every)

    def _difference(self) -> LosslessError | None:
        bad = ("mismatch", "tie") if self.strict else ("mismatch",)
        wrong = [c for c in self.every if c.outcome in bad]
        if wrong:
            first = wrong[0]
            return LosslessError(
                f"speculation changed {len(wrong)} of {len(self.every)} texts",
                why=f"first at token {first.at}{_of_seed(first)}: "
                f"{first.plain_token} plain, "
                f"{first.drafted_token} drafted, gap {first.gap:.3g} "
                f"(tie up to {first.tolerance:.3g})",
                fix=[_WITHOUT],
            )
        sampled = self.sampled
        if sampled and not sampled.passed:
            return LosslessError(
                "sampling with drafts does not follow the target's distribution",
                why=f"p = {sampled.p_drafted:.2g} with drafts, {sampled.p_plain:.2g} "
                f"without; {_NO_CHANCE}",
                fix=[_WITHOUT],
            )
        return None

    def _nothing_drafted(self) -> UsageError | None:
        if not self.drafted:
            tokens = sum(comparison.tokens for comparison in self.every)
            what = f"{_prompts(self.comparisons)} with {tokens:,} answer tokens"
        elif self.sampled and not self.sampled.drafted:
            what = f"{self.sampled.draws:,} draws"
        else:
            return None
        reason = self.draft["reason"]
        return UsageError(
            "nothing is proved: not one token was drafted",
            why=f"no draft in {what}" + (f" ({reason})" if reason else ""),
            fix=[
                f"splashpy verify {shlex.quote(self.model)} --prompts FILE, "
                "a file of prompts that repeat text",
                "a larger --max-tokens, or a drafter: --draft DIR|REPO",
            ],
        )


def describe(comparison: Comparison, decode: Callable[[list[int]], str]) -> str:
    """One comparison in a few words, its first difference spelled out.

    Args:
        comparison: what is described.
        decode: text of token ids.
    """
    drafts = kept(comparison.accepted, comparison.drafted)
    if comparison.outcome == "identical":
        tokens = f"{comparison.tokens} tokens{_of_seed(comparison)}"
        return f"identical ({tokens}; {drafts})"
    words = [
        repr(decode([token])) if token >= 0 else "the end"
        for token in (comparison.plain_token, comparison.drafted_token)
    ]
    return (
        f"{comparison.outcome} at token {comparison.at}{_of_seed(comparison)}: "
        f"{words[0]} plain, "
        f"{words[1]} drafted, gap {comparison.gap:.3g} ({drafts})"
    )


def summary(comparisons: Sequence[Comparison]) -> str:
    """``12 prompts: 11 identical, 1 tie at token 173 (gap 0.06)``."""
    parts = []
    for outcome in ("identical", "tie", "mismatch"):
        of_kind = [c for c in comparisons if c.outcome == outcome]
        if not of_kind and outcome != "identical":
            continue
        part = f"{len(of_kind)} {outcome}"
        if outcome != "identical":
            part += f" at token {of_kind[0].at} (gap {of_kind[0].gap:.3g})"
        parts.append(part)
    return f"{_prompts(comparisons)}: {', '.join(parts)}"


def kept(accepted: int, drafted: int) -> str:
    """``1,204 of 3,310 drafted tokens accepted``."""
    return f"{accepted:,} of {drafted:,} drafted tokens accepted"


def shorten(text: str, width: int = 48) -> str:
    """The beginning of a prompt on one line."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def _told(comparisons: Sequence[Comparison]) -> str:
    """A summary with its drafts; empty of no comparison."""
    if not comparisons:
        return ""
    drafted = sum(comparison.drafted for comparison in comparisons)
    accepted = sum(comparison.accepted for comparison in comparisons)
    return f"{summary(comparisons)}; {kept(accepted, drafted)}"


def _prompts(comparisons: Sequence[Comparison]) -> str:
    kind = "prompt" if comparisons[0].seed is None else "seeded text"
    return f"{len(comparisons)} {kind}{'' if len(comparisons) == 1 else 's'}"


def _of_seed(comparison: Comparison) -> str:
    return "" if comparison.seed is None else f" of seed {comparison.seed}"


def _row(text: str, comparison: Comparison) -> dict[str, Any]:
    row = {"prompt": text, **asdict(comparison)}
    if math.isinf(comparison.gap):  # one text ended early; JSON has no infinity
        row["gap"] = None
    return row


def _sampling_line(sampled: SamplingTest) -> str:
    return (
        f"sampling: {sampled.draws} draws of one token in {sampled.bins} bins, "
        f"p = {sampled.p_drafted:.3f} with drafts, {sampled.p_plain:.3f} without "
        f"({sampled.accepted} of {sampled.drafted} drafts kept)"
    )
