# SPDX-License-Identifier: Apache-2.0
"""An answer that has to follow a grammar: which tokens may come next.

Every verify row is decided among the tokens its own prefix allows, so the text is the
one plain decoding under the same grammar writes. Drafts may be chosen with the grammar
in mind, which only saves rows that could not be accepted.

A model that reasons first does so freely: the grammar begins after the token that ends
its reasoning. Where only the calls of an answer are bound, it begins after the token
that begins a call.

Shapes: K drafted tokens, V vocabulary, W = ceil(V / 32) words of a bit per token.
Source: the parser and its masks are llguidance's (MIT).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from splashpy.errors import UsageError

if TYPE_CHECKING:
    from llguidance import LLMatcher

_BITS = 32
_ALL = -1  # a word that allows each of its tokens


class Grammar:
    """Where one answer stands in its grammar.

    Args:
        matcher: of the grammar, at the answer's beginning; owned from here on.
        vocab_size: tokens the matcher knows.
        after: tokens that have to come first, in this order, with anything between
            them: the one that ends the reasoning, say.
        instead: a token an answer may begin with instead; None where it may not.
        calls: of the grammar after ``instead``; None: what follows is free.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        vocab_size: int,
        after: Sequence[int] = (),
        instead: int | None = None,
        calls: LLMatcher | None = None,
    ):
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._after = tuple(after)
        self._instead = instead
        self._calls = calls
        self._left = False  # the answer began with something else

    def fork(self) -> Grammar:
        """An independent copy."""
        matcher, calls = self._matcher.deep_copy(), self._calls
        calls = calls.deep_copy() if calls is not None else None
        copy = Grammar(matcher, self._vocab_size, self._after, self._instead, calls)
        copy._left = self._left
        return copy

    @property
    def finished(self) -> bool:
        """Whether nothing may follow but an end token."""
        bound = not self._after and not self._left
        return bound and self._matcher.is_stopped()

    def free(self, rows: int) -> bool:
        """Whether the next rows may be any token, whatever comes in them."""
        del rows  # any of them may be what the grammar begins after
        return self._left

    def consume(self, token_ids: Sequence[int]) -> int:
        """Go on by the tokens of an answer.

        Returns:
            How many were taken: the rest came after its end.
        """
        for count, token in enumerate(token_ids, 1):
            self._take(token)
            if self.finished:
                return count
        return len(token_ids)

    def legal(self, token_ids: Sequence[int]) -> int:
        """How many of the tokens may follow, one after the other."""
        free, bound = self._begun(token_ids)
        if self._left or not bound:
            return len(token_ids)
        matcher = self._matcher
        if list(token_ids[free : free + 1]) == [self._instead]:
            if self._calls is None:
                return len(token_ids)
            free, matcher = free + 1, self._calls
        return free + matcher.validate_tokens(list(token_ids[free:]))

    def forced(self) -> list[int]:
        """Tokens that must follow as they are usually written; often none."""
        open_ = bool(self._after) or self._left or self._instead is not None
        if open_ or self.finished:
            return []
        return self._matcher.compute_ff_tokens()

    def allows(self, token_ids: Sequence[int]) -> list[bool]:
        """Which of these tokens may come next."""
        mask = self.masks(())[0]
        if (mask == _ALL).all():
            return [True] * len(token_ids)
        row, ids = mask.view(np.uint32), np.asarray(token_ids)
        known = ids < row.shape[0] * _BITS
        words = row[np.where(known, ids // _BITS, 0)]
        return (known & ((words >> (ids % _BITS).astype(np.uint32)) & 1 == 1)).tolist()

    def masks(self, drafts: Sequence[int]) -> NDArray[np.int32]:
        """What every verify row may choose from.

        Row j follows ``drafts[:j]``. Rows after a draft that is not allowed decide
        nothing; they repeat the last row that does.

        Returns:
            [K + 1, W] int32; bit t % 32 of word t // 32 stands for token t.

        Raises:
            UsageError: the grammar takes more work than its library allows.
        """
        width = -(-self._vocab_size // _BITS)
        rows = np.full((len(drafts) + 1, width), _ALL, dtype=np.int32)
        ahead = self.fork() if drafts else self
        for row, token in enumerate([None, *drafts]):
            if token is not None and not ahead._step(token):
                rows[row:] = rows[row - 1]
                break
            ahead._fill(rows[row])
        return rows

    def apply(self, logits: mx.array, drafts: Sequence[int]) -> mx.array:
        """Logits with -inf where a token may not be chosen.

        Args:
            logits: [K + 1, V]; row j follows ``drafts[:j]``.
            drafts: K tokens.

        Raises:
            UsageError: the grammar takes more work than its library allows.
        """
        return restrict(logits, self.masks(drafts))

    def _begun(self, token_ids: Sequence[int]) -> tuple[int, bool]:
        """How many of the tokens come before the grammar, and whether it begins."""
        free = 0
        for wanted in self._after:
            if wanted not in token_ids[free:]:
                return len(token_ids), False
            free = token_ids.index(wanted, free) + 1
        return free, True

    def _take(self, token: int) -> None:
        if self._left:
            return
        if self._after:
            self._after = self._after[token == self._after[0] :]
        elif token == self._instead:
            self._instead, self._left = None, self._calls is None
            self._matcher = self._calls or self._matcher
        else:
            self._instead = None
            self._matcher.consume_token(token)

    def _step(self, token: int) -> bool:
        """Take one draft if it is allowed and something can follow it."""
        if not self.legal([token]):
            return False
        self.consume([token])
        return not self.finished

    def _fill(self, row: NDArray[np.int32]) -> None:
        if self._after or self._left:
            return
        self._matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        if self._matcher.is_error():
            raise UsageError(
                "the answer's grammar takes too much work",
                why=self._matcher.get_error(),
                fix=["simplify the schema or the grammar"],
            )
        if self._instead is not None:
            word = row[self._instead // _BITS :][:1].view(np.uint32)
            word |= np.uint32(1 << self._instead % _BITS)


def restrict(logits: mx.array, masks: NDArray[np.int32]) -> mx.array:
    """Logits with -inf where a mask forbids the token.

    Args:
        logits: [K + 1, V], any float dtype.
        masks: [K + 1, W] from :meth:`Grammar.masks`; tokens beyond its bits are
            forbidden where any token is.
    """
    if (masks == _ALL).all():
        return logits
    rows, vocab = logits.shape
    free = mx.array((masks == _ALL).all(axis=1, keepdims=True))
    words = mx.array(masks.view(np.uint32))[:, :, None] >> mx.arange(
        _BITS, dtype=mx.uint32
    )
    bits = (words & 1).astype(mx.bool_).reshape(rows, -1)[:, :vocab]
    bits = mx.pad(bits, [(0, 0), (0, vocab - bits.shape[1])])
    return mx.where(bits | free, logits, mx.array(-mx.inf, dtype=logits.dtype))
