# SPDX-License-Identifier: Apache-2.0
"""The target's head as a trainer uses it: whole, or for frequent tokens only.

The head and the softmax over it are most of a training step. A few thousand frequent
tokens cover nearly all of a model's own text, so their rows alone teach almost as much
for a fraction of the time. A label outside them teaches nothing and counts as a miss.

Shapes: V vocabulary, R rows of this head, D channels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import mlx.core as mx

from splashpy.drafting.dflash2 import TargetDoor


class DraftHead:
    """Logits of drafted rows.

    Args:
        target: whose head is borrowed.
        size: D.
        vocab_size: V, the drafter's.
        token_ids: the tokens of a restricted head; None is the whole vocabulary.

    Attributes:
        token_ids: [R] int32, the token of every row; None when row and id agree.
        rows: R.
    """

    def __init__(
        self,
        target: TargetDoor,
        size: int,
        vocab_size: int,
        token_ids: Sequence[int] | None = None,
    ):
        self._target = target
        self._vocab = vocab_size
        self.token_ids: mx.array | None = None
        self.rows = vocab_size
        if token_ids is not None:
            self._restrict(size, sorted(token_ids))

    def __call__(self, hidden: mx.array) -> mx.array:
        """[M, D] rows to [M, R] float32 logits, without the drafter's transform."""
        if self.token_ids is None:
            logits = self._target.head(hidden)[:, : self._vocab]
        else:
            logits = hidden @ self._weight
        return logits.astype(mx.float32)

    def row_of(self, token_ids: mx.array) -> mx.array:
        """Rows of tokens; -1 for a token this head leaves out."""
        return token_ids if self.token_ids is None else self._row_of[token_ids]

    def id_of(self, rows: mx.array) -> mx.array:
        """Tokens of rows."""
        return rows if self.token_ids is None else self.token_ids[rows]

    def _restrict(self, size: int, token_ids: list[int]) -> None:
        self.rows = len(token_ids)
        self.token_ids = mx.array(token_ids, dtype=mx.int32)
        dtype = self._target.embed(mx.array([0])).dtype
        # The head of the unit vectors is its matrix, however it is stored.
        whole = self._target.head(mx.eye(size, dtype=dtype))
        self._weight = mx.contiguous(whole[:, self.token_ids])
        none = mx.full((self._vocab,), -1, dtype=mx.int32)
        none[self.token_ids] = mx.arange(self.rows, dtype=mx.int32)
        self._row_of = none
        mx.eval(self.token_ids, self._weight, self._row_of)


def frequent_tokens(texts: Iterable[Sequence[int]], count: int) -> list[int]:
    """The most frequent tokens, at most ``count``; ties go to the lower id."""
    seen = Counter(token for text in texts for token in text)
    ranked = sorted(seen, key=lambda token: (-seen[token], token))
    return sorted(ranked[:count])
