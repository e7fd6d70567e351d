# SPDX-License-Identifier: Apache-2.0
"""The model whose words count, as the engine sees it.

``Target`` is the door; ``MlxLmTarget`` opens it for mlx-lm's architectures, whose
layers run unchanged: only their cache objects (``state.py``) and, where a drafter
asks for features, taps on single layers (``tap.py``) are ours.

Shapes: L positions in this call, V vocabulary, F feature layers, D hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn

from splashpy.errors import ModelKindError
from splashpy.models.state import LaneKV, TargetState
from splashpy.models.tap import Taps


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
        weight_bytes: bytes of the weights as loaded.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    context_max: int
    kv_bytes_per_token: int = 0
    weight_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Forward:
    """What one pass of the target computed, unevaluated.

    Attributes:
        logits: [R, V] float32 of the last R rows; R was chosen by the caller.
        features: [L, F * D] of every row; None when no layer is tapped.
    """

    logits: mx.array
    features: mx.array | None


class Target(Protocol):
    """The target's front door."""

    facts: TargetFacts

    def new_state(self, capacity: int) -> TargetState:
        """A state of length 0 with room for ``capacity`` rows; it grows beyond."""
        ...

    def forward(self, state: TargetState, token_ids: mx.array, *, rows: int) -> Forward:
        """Append ``token_ids`` [L] to the state; logits for the last ``rows`` rows.

        The vocabulary head runs for those rows only: 0 for all prefill chunks but the
        last, 1 there, L when verifying.
        """
        ...

    def embed(self, token_ids: mx.array) -> mx.array:
        """[L] ids to [L, D] rows of the input embedding."""
        ...

    def head(self, hidden: mx.array) -> mx.array:
        """[L, D] normed hidden rows to [L, V] logits."""
        ...

    def tap(self, layer_ids: Sequence[int]) -> None:
        """Let ``forward`` return features of these layers; () removes the taps."""
        ...


class MlxLmTarget:
    """An mlx-lm model of full-attention layers behind the door.

    Args:
        model: an instance of one of mlx-lm's ``Model`` classes.
        facts: what its checkpoint says.
    """

    def __init__(self, model: nn.Module, facts: TargetFacts):
        self.facts = facts
        self._model: Any = model
        self._backbone: Any = find_backbone(model)
        self._taps: Taps | None = None

    def new_state(self, capacity: int) -> TargetState:
        """See :class:`Target`."""
        return TargetState([LaneKV(capacity) for _ in self._backbone.layers])

    def forward(self, state: TargetState, token_ids: mx.array, *, rows: int) -> Forward:
        """See :class:`Target`."""
        hidden = self._backbone(token_ids[None], cache=state.lanes)[0]
        features = self._taps.take() if self._taps else None
        last = hidden[hidden.shape[0] - rows :]
        logits = self.head(last) if rows else mx.zeros((0, self.facts.vocab_size))
        return Forward(logits.astype(mx.float32), features)

    def embed(self, token_ids: mx.array) -> mx.array:
        """See :class:`Target`."""
        return self._backbone.embed_tokens(token_ids)

    def head(self, hidden: mx.array) -> mx.array:
        """See :class:`Target`."""
        lm_head = getattr(self._model, "lm_head", None)
        if lm_head is not None:
            return lm_head(hidden)
        return self._backbone.embed_tokens.as_linear(hidden)

    def tap(self, layer_ids: Sequence[int]) -> None:
        """See :class:`Target`."""
        if self._taps:
            self._taps.remove()
        self._taps = Taps(self._backbone.layers, layer_ids) if layer_ids else None


def find_backbone(model: Any) -> Any:
    """The module that holds the embedding, the decoder layers and the final norm.

    Raises:
        ModelKindError: the model has no such module.
    """
    for path in ("language_model.model", "model", "backbone"):
        module = model
        for name in path.split("."):
            module = getattr(module, name, None)
        if module is not None and hasattr(module, "layers"):
            return module
    raise ModelKindError(f"{type(model).__module__} has no list of decoder layers")


def check_taps(target: MlxLmTarget, layer_ids: Sequence[int]) -> str:
    """Try the taps on four tokens; leaves them installed where they hold.

    Two identities must hold bit for bit: logits with and without taps, and the door's
    own head over its backbone against the model's forward.

    Returns:
        An empty string, or the reason why this target cannot feed a drafter.
    """
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
