# SPDX-License-Identifier: Apache-2.0
"""A limit to the tokens a model reasons for, after which it has to answer.

When the limit is reached the model is left no choice but the tokens that end the
reasoning, one a row; from there on it writes what it would write after such a text.
The rule looks at the tokens before a row only, so drafts change nothing.

Shapes: K drafted tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import mlx.core as mx

from splashpy.verification.grammar import Grammar

_FREE = -1  # a row that may be any token


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningLimit:
    """How long a model may reason, and how it is made to end.

    Attributes:
        tokens: of reasoning at most, over all blocks of an answer, tags not counted.
        closing: what is written then; the last token is the one that ends a block.
        opener: the token that begins a block; None where none can begin.
        inside: the prompt has begun one.
    """

    tokens: int
    closing: tuple[int, ...]
    opener: int | None = None
    inside: bool = False


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an answer stands.

    Attributes:
        left: reasoning tokens that may still come.
        inside: a block is open.
        written: tokens of the closing that were written.
        over: the limit was reached; a block that begins later is not cut short.
    """

    left: int
    inside: bool
    written: int = 0
    over: bool = False


class LimitedReasoning:
    """The rules of one answer whose reasoning is limited.

    Args:
        limit: of the reasoning.
        grammar: what the answer must follow beside; owned from here on.
    """

    def __init__(self, limit: ReasoningLimit, grammar: Grammar | None = None):
        self._limit = limit
        self._grammar = grammar
        self._place = _Place(limit.tokens, limit.inside)

    def fork(self) -> LimitedReasoning:
        """An independent copy."""
        grammar = self._grammar.fork() if self._grammar is not None else None
        copy = LimitedReasoning(self._limit, grammar)
        copy._place = self._place
        return copy

    @property
    def finished(self) -> bool:
        """Whether nothing may follow but an end token."""
        return self._grammar is not None and self._grammar.finished

    def free(self, rows: int) -> bool:
        """Whether the next rows may be any token, whatever comes in them."""
        if self._grammar is not None and not self._grammar.free(rows):
            return False
        place = self._place
        if place.inside:
            return rows <= place.left
        return place.over or self._limit.opener is None or rows <= place.left + 1

    def consume(self, token_ids: Sequence[int]) -> int:
        """Go on by the tokens of an answer; how many came before its end."""
        taken = len(token_ids)
        if self._grammar is not None:
            taken = self._grammar.consume(token_ids)
        for token in token_ids[:taken]:
            self._place = self._after(self._place, token)
        return taken

    def legal(self, token_ids: Sequence[int]) -> int:
        """How many of the tokens may follow, one after the other."""
        place, legal = self._place, len(token_ids)
        if self._grammar is not None:
            legal = self._grammar.legal(token_ids)
        for count, token in enumerate(token_ids[:legal]):
            if self._demand(place) not in (_FREE, token):
                return count
            place = self._after(place, token)
        return legal

    def forced(self) -> list[int]:
        """Tokens that must follow; often none."""
        place = self._place
        if self._demand(place) != _FREE:
            return list(self._limit.closing[place.written :])
        return self._grammar.forced() if self._grammar is not None else []

    def allows(self, token_ids: Sequence[int]) -> list[bool]:
        """Which of these tokens may come next."""
        demand = self._demand(self._place)
        if demand != _FREE:
            return [token == demand for token in token_ids]
        if self._grammar is not None:
            return self._grammar.allows(token_ids)
        return [True] * len(token_ids)

    def apply(self, logits: mx.array, drafts: Sequence[int]) -> mx.array:
        """Logits with -inf where a token may not be chosen.

        Args:
            logits: [K + 1, V]; row j follows ``drafts[:j]``.
            drafts: K tokens.

        Raises:
            UsageError: the grammar takes more work than its library allows.
        """
        if self._grammar is not None:
            logits = self._grammar.apply(logits, drafts)
        place, demands = self._place, []
        for token in (None, *drafts):
            place = place if token is None else self._after(place, token)
            demands.append(self._demand(place))
        wanted = mx.array(demands)[:, None]
        chosen = (wanted == _FREE) | (wanted == mx.arange(logits.shape[1]))
        return mx.where(chosen, logits, mx.array(-mx.inf, dtype=logits.dtype))

    def _demand(self, place: _Place) -> int:
        """The only token that may follow."""
        if not place.inside or place.left:
            return _FREE
        return self._limit.closing[place.written]

    def _after(self, place: _Place, token: int) -> _Place:
        if not place.inside:
            opens = token == self._limit.opener and not place.over
            return replace(place, inside=opens)
        if token == self._limit.closing[-1]:
            return _Place(place.left, inside=False, over=not place.left)
        if place.left:
            return replace(place, left=place.left - 1)
        # A draft that is not the demanded token is rejected: what follows is void.
        written = min(place.written + 1, len(self._limit.closing) - 1)
        return replace(place, written=written)


AnswerRules = Grammar | LimitedReasoning
"""What may follow the committed tokens of an answer."""
