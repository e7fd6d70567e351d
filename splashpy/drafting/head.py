# SPDX-License-Identifier: Apache-2.0
"""The target's head as a drafter borrows it: whole, or for frequent tokens only.

The head over the whole vocabulary is most of what a small drafter costs, drafting and
learning alike, and a few thousand frequent tokens cover nearly all of a model's own
text. A token outside them is never drafted; the target still writes it when it wants
to. Training and drafting use the same head, so what training measures is what
drafting gives.

Shapes: M rows, V vocabulary of the drafter, R rows of this head, D channels.
Source of the idea: W. Zhao et al., "FR-Spec", arXiv 2502.14856.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import mlx.core as mx


class TargetDoor(Protocol):
    """What a drafter borrows from the target."""

    def embed(self, token_ids: mx.array) -> mx.array:
        """[n] ids to [n, D] rows, scaled as the target scales them."""
        ...

    def head(self, hidden: mx.array) -> mx.array:
        """[n, D] rows to [n, V] logits, without the target's own cap or factor."""
        ...

    def head_rows(self, token_ids: mx.array) -> Callable[[mx.array], mx.array]:
        """A head for these tokens [R] only: [n, D] rows to [n, R] logits."""
        ...


class DraftHead:
    """Logits of drafted rows.

    Args:
        target: whose head is borrowed.
        vocab_size: V; the target's head may have more rows, for padding.
        token_ids: the tokens of a restricted head; None is the whole vocabulary.

    Attributes:
        token_ids: [R] int32, ascending, the token of every row; None when row and id
            agree.
        rows: R.
    """

    def __init__(
        self,
        target: TargetDoor,
        vocab_size: int,
        token_ids: Sequence[int] | None = None,
    ):
        self._head = target.head
        self._vocab = vocab_size
        self.token_ids: mx.array | None = None
        self.rows = vocab_size
        if token_ids is not None:
            self._restrict(target, sorted(token_ids))

    def __call__(self, hidden: mx.array) -> mx.array:
        """[M, D] rows to [M, R] float32 logits, without the drafter's transform."""
        return self._head(hidden)[:, : self.rows].astype(mx.float32)

    def row_of(self, token_ids: mx.array) -> mx.array:
        """Rows of tokens; -1 for a token this head leaves out."""
        return token_ids if self.token_ids is None else self._row_of[token_ids]

    def id_of(self, rows: mx.array) -> mx.array:
        """Tokens of rows."""
        return rows if self.token_ids is None else self.token_ids[rows]

    def _restrict(self, target: TargetDoor, token_ids: list[int]) -> None:
        self.rows = len(token_ids)
        self.token_ids = mx.array(token_ids, dtype=mx.int32)
        self._head = target.head_rows(self.token_ids)
        row_of = mx.full((self._vocab,), -1, dtype=mx.int32)
        row_of[self.token_ids] = mx.arange(self.rows, dtype=mx.int32)
        self._row_of = row_of
        mx.eval(self.token_ids, self._row_of)
