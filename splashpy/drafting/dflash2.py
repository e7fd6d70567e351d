# SPDX-License-Identifier: Apache-2.0
"""Draft a block with a DFlash or DFlash 2 network.

The block is the anchor followed by mask tokens; one forward gives a row per mask, and
the target's head turns rows into logits, of all tokens or of those the checkpoint calls
frequent. Version 1 takes the best token of every row by itself. DFlash 2 keeps the best
candidates of every row and picks the path the selector likes most, or draws one when
the target samples.

Features of committed positions wait in a queue until the next proposal, so cycles
that skip the drafter cost it next to nothing, and rows that no layer can see any more
by then are never projected.

Shapes: K drafted tokens, C candidates, V vocabulary, R rows of the head, F feature
layers, D channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from splashpy.drafting.drafter import (
    DraftSampling,
    Proposal,
    Rules,
    empty_proposal,
)
from splashpy.drafting.grammar_walk import Scores, walk_within
from splashpy.drafting.head import DraftHead, TargetDoor
from splashpy.errors import UsageError
from splashpy.kernels.candidate_selector import (
    Selector,
    best_path,
    drawn_path,
    lattice_of,
)
from splashpy.kernels.noise import Purpose, gumbel_rows
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.dflash2_compiled import CompiledNetwork
from splashpy.models.dflash2_context import DrafterContext

# A layer without a window needs every row, and features are several times as wide as
# keys and values: a longer queue than this is projected at once.
_QUEUE_ROWS = 512
# A queued array may keep the whole verify pass alive that it is a part of.
_QUEUE_ARRAYS = 64


@dataclass(slots=True)
class DFlash2State:
    """What a drafter remembers of one sequence.

    Attributes:
        context: keys and values of committed positions.
        queue: [n, F * D] features of the positions after those, in order.
    """

    context: DrafterContext
    queue: list[mx.array] = field(default_factory=list)

    @property
    def queued(self) -> int:
        """Rows that wait to be projected."""
        return sum(rows.shape[0] for rows in self.queue)

    @property
    def position(self) -> int:
        """Absolute position after the last committed row: the anchor's."""
        return self.context.position + self.queued

    @property
    def arrays(self) -> list[mx.array]:
        """Everything held, for evaluation."""
        return [*self.context.arrays, *self.queue]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for array in self.arrays)


class DFlash2Drafter:
    """Proposes the tokens of one block.

    Args:
        network: a loaded drafter.
        target: whose embedding and head it borrows.
        block_size: rows of a block, the anchor included; None is the trained size.
        look_ahead: at temperature 0, pick the path by the expected number of accepted
            tokens instead of slot by slot.
        whole_vocabulary: draft any token, even if the checkpoint lists frequent ones.

    Attributes:
        config: facts of the checkpoint.

    Raises:
        UsageError: ``block_size`` is below 2 or above the trained size.
    """

    def __init__(
        self,
        network: DFlashNetwork,
        target: TargetDoor,
        *,
        block_size: int | None = None,
        look_ahead: bool = False,
        whole_vocabulary: bool = False,
    ):
        config = network.config
        self.block_size = config.block_size if block_size is None else block_size
        if not 2 <= self.block_size <= config.block_size:
            raise UsageError(
                f"a block of {block_size} rows is not possible",
                why=f"this drafter was trained with {config.block_size} rows: the "
                f"anchor and {config.block_size - 1} drafts; the smallest block has 2",
                fix=["leave --block-size out, or decode plainly with --no-draft"],
            )
        self.feature_layers = config.feature_layers
        self.config = config
        self._network = network
        self._target = target
        tokens = None if whole_vocabulary else config.frequent_tokens
        self._head = DraftHead(target, config.vocab_size, tokens)
        self._compiled = CompiledNetwork(network, self._embed)
        self._best_tokens = mx.compile(self._choose_tokens)
        self._best_path = mx.compile(self._choose_path)
        self._drawn_path = mx.compile(self._draw_path)
        self._lattice_of = mx.compile(self._score)
        self._look_ahead = look_ahead
        mask = self._embed(mx.array([config.mask_token_id]))
        self._mask_rows = mx.repeat(mask, self.block_size - 1, axis=0)
        mx.eval(self._mask_rows)  # once; an unevaluated array is bound to its thread

    @property
    def nbytes(self) -> int:
        """Bytes of its weights; those it borrows are the target's."""
        weights: Any = tree_flatten(self._network.parameters())
        return sum(array.nbytes for _, array in weights)

    def new_state(self) -> DFlash2State:
        """A sequence that has not begun."""
        return DFlash2State(self._network.new_context())

    def idle(self, state: DFlash2State) -> bool:
        """Never: it always has a guess."""
        return False

    def observe(
        self,
        state: DFlash2State,
        token_ids: Sequence[int],
        features: mx.array | None,
        start: int,
    ) -> None:
        """Queue the features of newly cached rows; the tokens are not needed.

        Raises:
            ValueError: ``features`` have another width, or ``start`` leaves a gap.
        """
        if features is None or not features.shape[0]:
            return
        config = self.config
        width = len(config.feature_layers) * config.hidden_size
        if features.shape[1] != width:
            raise ValueError(f"features are {features.shape}, expected [n, {width}]")
        if not state.context.arrays and not state.queue:
            state.context.position = start
        if start != state.position:
            raise ValueError(f"rows from {start} do not follow row {state.position}")
        state.queue.append(features)
        self._bound_queue(state)

    def new_context(self) -> DrafterContext:
        """See :class:`~splashpy.drafting.drafter.KeepsContext`."""
        return self._network.new_context()

    def keep(self, state: DFlash2State) -> DrafterContext | None:
        """See :class:`~splashpy.drafting.drafter.KeepsContext`; projects the queue."""
        self._project(state)
        return state.context if state.context.arrays else None

    def take_up(self, state: DFlash2State, context: DrafterContext) -> None:
        """See :class:`~splashpy.drafting.drafter.KeepsContext`."""
        state.context = context

    def propose(
        self,
        state: DFlash2State,
        anchor: mx.array,
        limit: int,
        sampling: DraftSampling,
    ) -> Proposal:
        """The path after ``anchor``; builds a graph and waits for nothing."""
        count = min(self.block_size - 1, limit)
        if count < 1:
            return empty_proposal()
        self._project(state)
        piece = self._compiled(anchor, self._mask_rows[:count], state.context)
        if self.config.version == 1:
            # One token per row, even when the target samples: tokens drawn row by
            # row would not fit each other.
            return _legal(self._best_tokens(*piece), sampling.grammar)
        if sampling.grammar is not None:
            return self._propose_within(anchor, piece, sampling, sampling.grammar)
        if sampling.temperature == 0:
            return Proposal(self._best_path(anchor, *piece))
        token_ids, candidates, probs = self._drawn_path(
            anchor, self._noise(count, sampling), mx.array(sampling.temperature), *piece
        )
        if sampling.coupled:  # given the shared noise, nothing is left to chance
            return Proposal(token_ids)
        return Proposal(token_ids, candidates=candidates, probs=probs)

    def _propose_within(
        self,
        anchor: mx.array,
        piece: Sequence[mx.array],
        sampling: DraftSampling,
        grammar: Rules,
    ) -> Proposal:
        """A path inside a grammar; waits for the network, since the host walks."""
        lattice, candidates = self._lattice_of(anchor, *piece)
        noise = None
        if sampling.temperature > 0:
            noise = _per_candidate(
                self._noise(candidates.shape[0], sampling), candidates
            )
        scores = Scores(
            np.array(candidates), np.array(lattice[0]), np.array(lattice[1])
        )
        path = walk_within(
            scores,
            grammar,
            sampling.temperature,
            None if noise is None else np.array(noise),
        )
        token_ids = mx.array(path.token_ids, dtype=mx.int32)
        if sampling.coupled or noise is None or not path.token_ids:
            return Proposal(token_ids)
        kept = candidates[: len(path.token_ids)]
        return Proposal(token_ids, candidates=kept, probs=mx.array(path.probs))

    def _rows(self, *piece: mx.array) -> tuple[mx.array, mx.array]:
        """Hidden rows of the masks, [K, D], and their logits, [K, R]."""
        hidden = self._compiled.finish(*piece)[1:]
        return hidden, self._head(hidden)

    def _choose_tokens(self, *piece: mx.array) -> mx.array:
        best = mx.argmax(self._rows(*piece)[1], axis=-1)
        return self._head.id_of(best).astype(mx.int32)

    def _choose_path(self, anchor: mx.array, *piece: mx.array) -> mx.array:
        hidden, logits = self._rows(*piece)
        gates = self._gates(hidden)
        ahead = self._look_ahead
        return best_path(self._selector(), logits, gates, anchor, look_ahead=ahead)

    def _draw_path(
        self,
        anchor: mx.array,
        noise: mx.array,
        temperature: mx.array,
        *piece: mx.array,
    ) -> tuple[mx.array, mx.array, mx.array]:
        hidden, logits = self._rows(*piece)
        gates = self._gates(hidden)
        return drawn_path(self._selector(), logits, gates, anchor, temperature, noise)

    def _score(
        self, anchor: mx.array, *piece: mx.array
    ) -> tuple[tuple[mx.array, mx.array], mx.array]:
        hidden, logits = self._rows(*piece)
        gates = self._gates(hidden)
        lattice, candidates = lattice_of(self._selector(), logits, gates, anchor)
        return (lattice.first, lattice.following), candidates

    def _gates(self, hidden: mx.array) -> mx.array:
        return self._network.candidate_selector.hidden_projection(hidden)

    def _selector(self) -> Selector:
        config, codebooks = self.config, self._network.candidate_selector
        return Selector(
            codebooks.predecessor_codebook,
            codebooks.successor_codebook,
            config.selector_top_k,
            multiplier=config.output_multiplier,
            softcap=config.softcap,
            tokens=self._head.token_ids,
        )

    def _noise(self, slots: int, sampling: DraftSampling) -> mx.array:
        """Gumbel noise: [K, V], the target's own, when coupled; [K, C] otherwise."""
        seed, position = sampling.seed, sampling.position
        if sampling.coupled:
            # The target draws over all rows of its head; only their number is used.
            vocab = self._target.head(self._mask_rows[:1]).shape[1]
            return gumbel_rows(seed, position, slots, vocab)
        return gumbel_rows(
            seed,
            position,
            slots,
            self.config.selector_top_k,
            purpose=Purpose.DRAFT,
            cycle=sampling.cycle,
        )

    def _embed(self, token_ids: mx.array) -> mx.array:
        scale = self.config.input_embedding_scale
        rows = self._target.embed(token_ids)
        return rows if scale == 1 else rows * scale

    def _project(self, state: DFlash2State) -> None:
        """Move the queue into the context."""
        if state.queue:
            self._compiled.extend(state.context, mx.concatenate(state.queue))
            state.queue.clear()

    def _bound_queue(self, state: DFlash2State) -> None:
        horizon = self.config.horizon
        if horizon is None:
            full = state.queued >= _QUEUE_ROWS
        else:
            while state.queued - state.queue[0].shape[0] >= horizon:
                state.context.position += state.queue.pop(0).shape[0]
            full = False
        if full or len(state.queue) >= _QUEUE_ARRAYS:
            self._project(state)
            mx.async_eval(state.context.arrays)  # or the features would stay alive


def _legal(token_ids: mx.array, grammar: Rules | None) -> Proposal:
    """The tokens up to the first that a grammar forbids."""
    if grammar is None:
        return Proposal(token_ids)
    drafts: Any = token_ids.tolist()
    return Proposal(token_ids[: grammar.legal(drafts)])


def _per_candidate(noise: mx.array, candidates: mx.array) -> mx.array:
    """[K, C] of noise that may have a number per token, as shared noise has."""
    if noise.shape[1] == candidates.shape[1]:
        return noise
    return mx.take_along_axis(noise, candidates, axis=-1)
