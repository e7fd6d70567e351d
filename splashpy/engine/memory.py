# SPDX-License-Identifier: Apache-2.0
"""What fits into the memory of this machine; pure.

The plan is made before a weight is read, from shapes alone. It decides how keys and
values are kept and how long the context may be, and refuses what cannot work while a
refusal still costs nothing.

::

    budget  = what the machine gives - max(1 GiB, 2 %), or --max-memory where less
    context = (budget - target - drafter - workspace - lane) / bytes of a token

Attention over rows in 8 bits is not faster, and such rows are not the target's own
numbers. So they are used only where the context would not fit otherwise.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from splashpy.errors import CapacityError
from splashpy.protocol import KvFormat, KvWish
from splashpy.units import format_bytes, format_tokens

LEAST_CONTEXT = 4096
"""Tokens below which a model is of no use, where nobody asks for fewer."""

LONG_CONTEXT = 65536
"""Tokens that shall fit in bf16 where no context was asked for."""

STORED_SHARE = 0.6
"""Of what is left beside the model and one full text: states of earlier requests."""

_MOST_LANES = 32
_STEP = 256  # a context is a multiple of this where memory decides
_MARGIN_BYTES, _MARGIN = 1 << 30, 0.02  # for the system and other programs
_WORKSPACE_MOST = 3 << 30  # more was never seen beside a large target
_WORKSPACE_LEAST = 150_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Bytes a model takes, known before its weights are read.

    Attributes:
        target: weights as they will be loaded.
        draft: likewise of the drafter.
        row: state one token adds, in the width of the target's own numbers.
        row_q8: the same with keys and values in 8 bits; 0 where that is impossible.
        draft_row: what one token adds to the drafter's own state.
        lane: windows and recurrent states of one text, with their checkpoints.
        context_max: tokens the model was made for, or that were asked for.
    """

    target: int
    draft: int = 0
    row: int = 0
    row_q8: int = 0
    draft_row: int = 0
    lane: int = 0
    context_max: int

    @property
    def workspace(self) -> int:
        """For what a chunk of a prompt computes: a quarter of the target, in bounds."""
        return min(_WORKSPACE_MOST, _WORKSPACE_LEAST + self.target // 4)

    @property
    def fixed(self) -> int:
        """Everything that does not grow with the text."""
        return self.target + self.draft + self.workspace + self.lane

    def per_token(self, kv: KvFormat) -> int:
        """Bytes one more token takes."""
        return (self.row_q8 if kv == "q8" else self.row) + self.draft_row

    def total(self, kv: KvFormat, tokens: int) -> int:
        """Bytes with a context of so many tokens."""
        return self.fixed + tokens * self.per_token(kv)

    def room(self, kv: KvFormat, budget: int) -> int:
        """Tokens that fit, at most those the model was made for."""
        left, row = budget - self.fixed, self.per_token(kv)
        if left < 0:
            return 0
        tokens = left // row if row else self.context_max
        if tokens >= self.context_max:
            return self.context_max
        return tokens // _STEP * _STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was decided.

    Attributes:
        needs: of the model.
        budget: bytes that may be used.
        kv: how keys and values are kept.
        context: tokens of prompt plus answer.
    """

    needs: Needs
    budget: int
    kv: KvFormat
    context: int

    @property
    def total(self) -> int:
        """Bytes with a full context."""
        return self.needs.total(self.kv, self.context)

    @property
    def lanes(self) -> int:
        """Texts that may run at a time, so that each could have a short context."""
        fits = (
            n for n in range(2, _MOST_LANES + 1) if self.rows(n) < n * LEAST_CONTEXT
        )
        return next(fits, _MOST_LANES + 1) - 1

    def rows(self, lanes: int) -> int:
        """Rows the texts of so many lanes may hold together."""
        row = self.needs.per_token(self.kv)
        spare = self._spare - (lanes - 1) * self.needs.lane
        return self.context + spare // row if row else sys.maxsize

    @property
    def _spare(self) -> int:
        """Bytes beside one full text that states of earlier requests leave."""
        return int(max(self.budget - self.total, 0) * (1 - STORED_SHARE))


def budget_bytes(machine: int, limit: int | None) -> int:
    """What may be used of a machine.

    Args:
        machine: bytes it gives; 0 where it does not say.
        limit: bytes a person allows; None leaves it to the machine.
    """
    if not machine:
        return limit or 0
    most = max(machine - max(_MARGIN_BYTES, int(_MARGIN * machine)), 0)
    return most if limit is None else min(limit, most)


def plan_memory(
    needs: Needs, budget: int, *, asked: bool = False, kv: KvWish = "auto"
) -> Plan:
    """Decide what fits.

    Args:
        needs: of the model.
        budget: bytes that may be used.
        asked: ``needs.context_max`` was asked for, so all of it must fit.
        kv: the wish about keys and values.

    Raises:
        CapacityError: too little fits; says how much would.
    """
    chosen = _format(needs, budget, asked=asked, kv=kv)
    context = needs.room(chosen, budget)
    least = needs.context_max if asked else min(LEAST_CONTEXT, needs.context_max)
    if context < least:
        raise _refusal(needs, budget, chosen, least, kv=kv)
    return Plan(needs=needs, budget=budget, kv=chosen, context=context)


def _format(needs: Needs, budget: int, *, asked: bool, kv: KvWish) -> KvFormat:
    if kv == "bf16" or not needs.row_q8:
        return "bf16"
    wanted = needs.context_max if asked else min(needs.context_max, LONG_CONTEXT)
    fits = needs.room("bf16", budget) >= wanted
    return "bf16" if kv == "auto" and fits else "q8"


def _refusal(
    needs: Needs, budget: int, chosen: KvFormat, tokens: int, *, kv: KvWish
) -> CapacityError:
    needed = needs.total(chosen, tokens)
    parts = [f"weights {format_bytes(needs.target)}"]
    parts += [f"draft {format_bytes(needs.draft)}"] * (needs.draft > 0)
    parts += [f"workspace {format_bytes(needs.workspace)}"]
    parts += [f"states {format_bytes(needs.lane)}"] * (needs.lane > 0)
    rows = format_bytes(tokens * needs.per_token(chosen))
    parts += [f"{rows} for {format_tokens(tokens)} tokens of context"]
    return CapacityError(
        f"this needs {format_bytes(needed)}, {format_bytes(budget)} may be used",
        why=" + ".join(parts) + f"; {format_bytes(needed - budget)} too much",
        fix=_options(needs, budget, tokens, kv=kv),
    )


def _options(needs: Needs, budget: int, tokens: int, *, kv: KvWish) -> list[str]:
    """What would fit instead, each option computed."""
    without = Needs(
        target=needs.target,
        row=needs.row,
        row_q8=needs.row_q8,
        lane=needs.lane,
        context_max=needs.context_max,
    )
    formats: list[KvFormat] = ["bf16"]
    if needs.row_q8:
        formats.append("q8")
    found = []
    for words, model in (("", needs), (" --no-draft", without)):
        if model is without and not needs.draft:
            continue
        for each in formats:
            room = min(model.room(each, budget), tokens)
            switch = f" --kv {each}" if each != kv and each == "q8" else ""
            if room >= _STEP:
                found.append((room, switch, words, model.total(each, room)))
    # The least change first, then what leaves the longest context.
    best: dict[int, str] = {}
    for room, switch, words, size in found:
        if room > max(best, default=0):
            best[room] = (
                f"--max-context {room}{switch}{words}  (fits, {format_bytes(size)})"
            )
    return list(best.values()) or ["a smaller model, or a machine with more memory"]
