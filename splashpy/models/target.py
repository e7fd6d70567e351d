# SPDX-License-Identifier: Apache-2.0
"""The model whose words count, as the engine sees it.

``Target`` is the door; ``MlxLmTarget`` opens it for mlx-lm's architectures, whose
layers run unchanged: only their cache objects (``state.py``) are ours, and throw-away
subclasses of single modules that keep what passes through (``tap.py`` where a drafter
asks for features, ``gated_delta.py`` where a recurrence must be run again).

Shapes: L positions in this call, V vocabulary, F feature layers, D hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from splashpy.models.architecture import (
    DRAFTABLE,
    find_backbone,
    find_text_model,
    lane_makers,
    logit_transform,
    module_name,
)
from splashpy.models.gated_delta import DeltaRecorder, find_delta_layers
from splashpy.models.head_rows import Head, take_rows
from splashpy.models.quantized_lane import LaneQ8
from splashpy.models.row_layers import use_row_kernels
from splashpy.models.sharing import share_layers
from splashpy.models.state import BLOCK_ROWS, TargetState
from splashpy.models.tap import Taps
from splashpy.models.together import SharedLayers, TextLanes
from splashpy.protocol import KvFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """What a target's checkpoint says about itself.

    Attributes:
        model_type: architecture name, as in config.json.
        vocab_size: rows of the head.
        hidden_size: channels of the residual stream.
        num_layers: decoder layers.
        context_max: tokens of prompt plus answer.
        kv_bytes_per_token: bytes of state one token adds.
        kv: how full attention keeps its rows.
        weight_bytes: bytes of the weights as loaded.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    context_max: int
    kv_bytes_per_token: int = 0
    kv: KvFormat = "bf16"
    weight_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StateSizes:
    """Bytes of a text's state.

    Attributes:
        row: each further token.
        row_q8: the same with full attention in 8 bits; 0 where no layer can.
        fixed: windows and recurrent states, however long the text is.
    """

    row: int
    row_q8: int
    fixed: int


@dataclass(frozen=True, slots=True)
class Forward:
    """What one pass of the target computed, unevaluated.

    Attributes:
        logits: [R, V] float32 of the last R rows; R was chosen by the caller.
        features: [L, F * D] of every row; None when no layer is tapped.
    """

    logits: mx.array
    features: mx.array | None


_LONGER_THAN_WINDOWS = 1 << 16  # rows; only shapes are made of them


class Target(Protocol):
    """The target's front door."""

    facts: TargetFacts

    def new_state(self, capacity: int) -> TargetState:
        """A state of length 0 with room for ``capacity`` rows; it grows beyond."""
        ...

    def forward(self, state: TargetState, token_ids: mx.array, *, rows: int) -> Forward:
        """Append ``token_ids`` [L] to the state; logits for the last ``rows`` rows.

        The vocabulary head runs for those rows only: 0 for all prefill chunks but the
        last, 1 there, L when verifying. A state can be rolled back into a pass whose
        rows were all asked for.
        """
        ...

    def forward_together(
        self, states: Sequence[TargetState], token_ids: mx.array
    ) -> list[Forward]:
        """:meth:`forward` of L rows of every text, [B, L]; logits for all rows.

        Every text comes out as from a pass of its own. Where :meth:`shares` is False,
        these are passes of their own.
        """
        ...

    def shares(self) -> bool:
        """Whether several texts can share a pass; found out at the first call."""
        ...

    def embed(self, token_ids: mx.array) -> mx.array:
        """[L] ids to [L, D] rows of the input embedding, as a drafter reads them.

        Scaled where the family scales its embedding by a number; raw where it
        normalizes it.
        """
        ...

    def head(self, hidden: mx.array) -> mx.array:
        """[L, D] normed hidden rows to [L, V] logits.

        Without the family's own factor and cap: a drafter brings its own.
        """
        ...

    def head_rows(self, token_ids: mx.array) -> Head:
        """A head that gives the logits of these tokens [R] only, in their order."""
        ...

    def tap(self, layer_ids: Sequence[int]) -> None:
        """Let ``forward`` return features of these layers; () removes the taps."""
        ...


class MlxLmTarget:
    """An mlx-lm model behind the door.

    Args:
        model: an instance of one of mlx-lm's ``Model`` classes.
        facts: what its checkpoint says.

    Attributes:
        family: the mlx-lm module the model comes from.

    Raises:
        ModelKindError: the model keeps a state that cannot be rolled back.
    """

    def __init__(self, model: nn.Module, facts: TargetFacts):
        self.facts = facts
        self._model: Any = model
        self._text: Any = find_text_model(model)
        self._backbone: Any = find_backbone(model)
        self._transform = logit_transform(self._text)
        self._makers = lane_makers(model)
        recurrent = find_delta_layers(self._backbone.layers)
        self._recorder = DeltaRecorder(recurrent) if recurrent else None
        self._taps: Taps | None = None
        self._whole = False
        self._shared: SharedLayers | None = None
        self._tried_sharing = False
        self.family = module_name(model)

    def new_state(self, capacity: int) -> TargetState:
        """See :class:`Target`."""
        return TargetState([make(capacity) for make in self._makers], self._read)

    def forward(self, state: TargetState, token_ids: mx.array, *, rows: int) -> Forward:
        """See :class:`Target`."""
        state.begin()
        if self._whole and rows:
            logits = self._model(token_ids[None], cache=state.lanes)[0][-rows:]
        else:
            hidden = self._backbone(token_ids[None], cache=state.lanes)[0]
            last = hidden[hidden.shape[0] - rows :]
            logits = self._transform(self.head(last)) if rows else self._no_logits()
        self._finish(state, token_ids, returnable=rows == token_ids.shape[0])
        features = self._taps.take() if self._taps else None
        return Forward(logits.astype(mx.float32), features)

    def forward_together(
        self, states: Sequence[TargetState], token_ids: mx.array
    ) -> list[Forward]:
        """See :class:`Target`."""
        if len(states) == 1 or not self.shares():
            rows = token_ids.shape[1]
            pairs = zip(states, token_ids, strict=True)
            return [self.forward(state, ids, rows=rows) for state, ids in pairs]
        return self.pass_together(states, token_ids)

    def shares(self) -> bool:
        """See :class:`Target`."""
        if not self._tried_sharing:
            self._tried_sharing = True
            self._shared = share_layers(self, self._backbone.layers)
        return self._shared is not None

    def pass_together(
        self, states: Sequence[TargetState], token_ids: mx.array
    ) -> list[Forward]:
        """One pass for L rows of every text, which the layers may not take."""
        texts, rows = token_ids.shape
        for state in states:
            state.begin()
        each = zip(*(state.lanes for state in states), strict=True)
        caches = [TextLanes(lanes) for lanes in each]
        if self._whole:
            logits = self._model(token_ids, cache=caches)
        else:
            hidden = self._backbone(token_ids, cache=caches)
            logits = self._transform(self.head(hidden))
        replays = self._recorder.take_each(texts) if self._recorder else [None] * texts
        for state, ids, replay in zip(states, token_ids, replays, strict=True):
            if rows <= BLOCK_ROWS:
                state.finish(ids, replay)
            else:
                state.finish_chunk(rows)
        features = self._taps.take_each(texts) if self._taps else [None] * texts
        logits = logits.astype(mx.float32)
        return [Forward(*pair) for pair in zip(logits, features, strict=True)]

    def forget_pass(self) -> None:
        """Drop what is left of a pass that failed."""
        if self._recorder:
            self._recorder.drop()
        if self._taps:
            self._taps.drop()

    def embed(self, token_ids: mx.array) -> mx.array:
        """See :class:`Target`."""
        rows = self._backbone.embed_tokens(token_ids)
        scale = getattr(self._backbone, "embed_scale", None)
        return rows if scale is None else rows * scale

    def head(self, hidden: mx.array) -> mx.array:
        """See :class:`Target`."""
        lm_head = getattr(self._text, "lm_head", None)
        if lm_head is not None:
            return lm_head(hidden)
        return self._backbone.embed_tokens.as_linear(hidden)

    def head_rows(self, token_ids: mx.array) -> Head:
        """See :class:`Target`."""
        lm_head = getattr(self._text, "lm_head", None)
        tied = lm_head is None
        return take_rows(self._backbone.embed_tokens if tied else lm_head, token_ids)

    def tap(self, layer_ids: Sequence[int]) -> None:
        """See :class:`Target`."""
        if self._taps:
            self._taps.remove()
        self._taps = Taps(self._backbone.layers, layer_ids) if layer_ids else None

    def round_rows(self) -> bool:
        """Let every new state keep the rows of full attention in 8 bits.

        Returns:
            Whether a layer can; nothing has changed where none can.
        """
        size = self._rounded_row()
        if not size:
            return False
        self._makers = lane_makers(self._model, LaneQ8)
        self.facts = replace(self.facts, kv="q8", kv_bytes_per_token=size)
        return True

    def state_sizes(self) -> StateSizes:
        """Bytes of a state, from shapes alone: no weight is read."""
        state = self.new_state(_LONGER_THAN_WINDOWS)
        self.forward(state, mx.array([0]), rows=0)
        unlimited = [lane for lane in state.lanes if not lane.row_nbytes]
        held = {id(a): a.nbytes for lane in unlimited for a in lane.held}
        return StateSizes(state.row_nbytes, self._rounded_row(), sum(held.values()))

    def _rounded_row(self) -> int:
        """Bytes of a row in 8 bits; 0 where no layer can. Nothing is evaluated."""
        makers = lane_makers(self._model, LaneQ8)
        state = TargetState([make(1) for make in makers], self._read)
        self.forward(state, mx.array([0]), rows=0)
        if not any(isinstance(lane, LaneQ8) and lane.rounds for lane in state.lanes):
            return 0
        return state.row_nbytes

    def read_together(self, token_ids: mx.array, caches: list[Any]) -> mx.array:
        """Let texts be read in mlx-lm's own caches, where nothing is taken back.

        Args:
            token_ids: [S, L] of S texts.
            caches: as the model makes them, for S texts.

        Returns:
            Logits [S, V] float32 of the last position.
        """
        if self._whole:
            logits = self._model(token_ids, cache=caches)[:, -1]
        else:
            hidden = self._backbone(token_ids, cache=caches)[:, -1]
            logits = self._transform(self.head(hidden))
        if self._recorder:
            self._recorder.drop()
        return logits.astype(mx.float32)

    def own_caches(self) -> list[Any]:
        """What :meth:`read_together` reads one text into."""
        return make_prompt_cache(self._model)

    def run_whole(self) -> None:
        """Run the whole model in every pass: its head is not the one known."""
        self._whole = True

    def use_row_kernels(self) -> None:
        """Let passes of a few rows run kernels, where they are allowed to."""
        use_row_kernels(self._model)
        if self._recorder:
            self._recorder.use_row_kernels()

    def forget_recurrence(self) -> None:
        """Read kept tokens again instead of running a recurrence again."""
        if self._recorder:
            self._recorder.remove()
            self._recorder = None

    @property
    def undraftable(self) -> str:
        """Why no drafter network may be used; empty where one may."""
        if self.family not in DRAFTABLE:
            return f"no drafter is known for models of mlx_lm.models.{self.family}"
        return f"the head of {self.family} is not the one known" if self._whole else ""

    def _finish(
        self, state: TargetState, token_ids: mx.array, *, returnable: bool
    ) -> None:
        replay = self._recorder.take() if self._recorder else None
        if returnable and token_ids.shape[0] <= BLOCK_ROWS:
            state.finish(token_ids, replay)
        else:
            state.finish_chunk(token_ids.shape[0])

    def _read(self, state: TargetState, token_ids: mx.array) -> None:
        """Read tokens for the state's sake."""
        state.begin()
        self._backbone(token_ids[None], cache=state.lanes)
        self._finish(state, token_ids, returnable=True)
        if self._taps:
            self._taps.drop()

    def _no_logits(self) -> mx.array:
        return mx.zeros((0, self.facts.vocab_size))


def check_taps(target: MlxLmTarget, layer_ids: Sequence[int]) -> str:
    """Try the taps on four tokens; leaves them installed where they hold.

    Two identities must hold bit for bit: logits with and without taps, and the door's
    own head over its backbone against the model's forward.

    Returns:
        An empty string, or the reason why this target cannot feed a drafter.
    """
    if target.undraftable:
        return target.undraftable
    ids = mx.arange(4) % target.facts.vocab_size
    plain = target._model(ids[None])[0].astype(mx.float32)
    target.tap(layer_ids)
    tapped = target.forward(target.new_state(4), ids, rows=4)
    features = tapped.features
    width = len(layer_ids) * target.facts.hidden_size
    if features is None or features.shape != (4, width):
        target.tap(())
        return f"the tapped layers give {features and features.shape}, not (4, {width})"
    if not mx.array_equal(plain, tapped.logits):
        target.tap(())
        gap = mx.abs(plain - tapped.logits).max().item()
        return f"logits with taps differ from those without by up to {gap:.3g}"
    return ""
