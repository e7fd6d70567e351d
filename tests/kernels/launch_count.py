# SPDX-License-Identifier: Apache-2.0
"""How many launches one cycle takes, counted in MLX's graph.

The graph of two cycles is built without weights and without evaluating anything; the
second cycle, which goes back into the first one's block, is what counts. A kernel is
one node, and so is every operation that MLX runs as one kernel on a GPU, also where the
CPU composes it (norms, rotary embedding, attention, the recurrence). Attention counts
as one launch for MLX even where it would take several. Operations that only describe
the same memory anew count nothing.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map
from mlx_lm.models import qwen3_5
from mlx_lm.models.gated_delta import compute_g

from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.engine.cycle import launch
from splashpy.engine.request import GenerationRequest
from splashpy.engine.sequence import Sequence as Text
from splashpy.kernels import gate, metal
from splashpy.kernels.cycle_work import (
    DFLASH2_27B,
    QWEN38_27B,
    DraftGeometry,
    Geometry,
)
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.dflash2_parse import parse_config
from splashpy.models.row_layers import use_row_kernels
from splashpy.models.target import MlxLmTarget, TargetFacts
from splashpy.verification.sampling import SamplingParams

LENGTH = 512  # keys before the block; the number does not matter
KEPT = 4

VIEWS = frozenset(
    {
        *("Broadcast", "BroadcastAxes", "ExpandDims", "Squeeze", "Reshape", "Flatten"),
        *("Unflatten", "Transpose", "Slice", "Split", "AsStrided", "View", "Full"),
        *("StopGradient", "NumberOfElements", "Copy"),
    }
)
KERNEL = "Depends"
"""Node that stands for one kernel, whatever its outputs."""

_LABEL = re.compile(r'label ?= ?"([^"]+)"')


@dataclass(frozen=True, slots=True)
class Launches:
    """What a cycle launches.

    Attributes:
        by_name: nodes of the graph that are launches, by their name.
    """

    by_name: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.by_name.values())

    def __sub__(self, other: Launches) -> Launches:
        return Launches(self.by_name - other.by_name)


def count_cycle(
    model: Geometry = QWEN38_27B,
    draft: DraftGeometry = DFLASH2_27B,
    *,
    kernels: bool,
    vocab: int = 8192,
) -> Launches:
    """Launches of a draft and the pass that verifies it.

    Args:
        model: depth and widths of the target.
        draft: of the drafter.
        kernels: whether every kernel runs, or none.
        vocab: tokens; the number of launches does not follow from it.
    """
    with _described():
        text, target = _text(model, draft, vocab, kernels=kernels)
        with gate.ruled((lambda name, shape: True) if kernels else None):
            first = launch(text, target)
            once = _launches([first.decision])
            start = text.state.length - first.decision.shape[0] + 3
            text.state.roll_back(start + KEPT)
            text.anchor = mx.array(1, dtype=mx.int32)
            text.launched = KEPT
            features = first.features
            assert features is not None
            text.drafter.observe(text.drafter_state, [], features[:KEPT], start)
            return _launches([launch(text, target).decision, first.decision]) - once


def _launches(outputs: Sequence[mx.array]) -> Launches:
    file = io.StringIO()
    mx.export_to_dot(file, *outputs)
    names = Counter(_LABEL.findall(file.getvalue()))
    kept = {
        name: times
        for name, times in names.items()
        if name[0].isupper() and name not in VIEWS and len(name) > 1
    }
    return Launches(Counter(kept))


@contextmanager
def _described() -> Iterator[None]:
    """Nothing is evaluated, and what a GPU runs as one kernel is one node."""
    metal.build.cache_clear()
    with ExitStack() as stack:
        for name in ("eval", "async_eval"):
            stack.enter_context(patch.object(mx, name, lambda *arrays: None))
        for name, stub in (
            ("metal_kernel", _Kernel),
            ("rms_norm", lambda x, *rest, **more: _node([x, *rest], [x])[0]),
            ("rope", lambda x, *rest, **more: _node([x], [x])[0]),
            ("scaled_dot_product_attention", _attention),
            ("gated_delta_update", _recurrence),
        ):
            stack.enter_context(patch.object(mx.fast, name, stub))
        stack.enter_context(patch.object(mx, "dequantize", _dequantize))
        update = patch.object(qwen3_5, "gated_delta_update", _delta_update)
        stack.enter_context(update)
        yield
    metal.build.cache_clear()


class _Kernel:
    """A kernel that is one node of the graph."""

    def __init__(self, **construction: Any):
        del construction

    def __call__(self, **call: Any) -> list[mx.array]:
        shapes = zip(call["output_shapes"], call["output_dtypes"], strict=True)
        outputs = [mx.zeros(shape, dtype=dtype) for shape, dtype in shapes]
        return _node(call["inputs"], outputs)


def _node(inputs: Sequence[Any], like: Sequence[mx.array]) -> list[mx.array]:
    arrays = [part for part in inputs if isinstance(part, mx.array)]
    outputs = [mx.zeros(part.shape, dtype=part.dtype) for part in like]
    made: Any = mx.depends(outputs, arrays)
    return list(made)


def _dequantize(words: mx.array, *, bits: int, **more: Any) -> mx.array:
    width = words.shape[-1] * 32 // bits
    scales = more["scales"]
    like = mx.zeros((*words.shape[:-1], width), dtype=scales.dtype)
    return _node([words, scales, more["biases"]], [like])[0]


def _attention(
    queries: mx.array, keys: mx.array, values: mx.array, **more: Any
) -> mx.array:
    mask = [more["mask"]] if isinstance(more.get("mask"), mx.array) else []
    return _node([queries, keys, values, *mask], [queries])[0]


def _recurrence(*parts: mx.array) -> tuple[mx.array, mx.array]:
    out, state = _node(parts, [parts[2], parts[5]])
    return out, state


def _delta_update(*parts: Any, **more: Any) -> tuple[mx.array, mx.array]:
    """mlx-lm's, as it is on a GPU: gates, rates, and one kernel."""
    q, k, v, a, b, log_decay, bias, state = parts[:8]
    inputs = [q, k, v, compute_g(log_decay, a, bias), mx.sigmoid(b), state]
    if state is None:
        state = mx.zeros((1, v.shape[2], v.shape[3], k.shape[3]))
    out, after = _node(inputs, [v, state])
    return out, after


def _text(
    model: Geometry, draft: DraftGeometry, vocab: int, *, kernels: bool
) -> tuple[Text, MlxLmTarget]:
    target = _target(model, vocab)
    network = _network(model, draft, vocab)
    if kernels:
        target.use_row_kernels()
        use_row_kernels(network)
    drafter = DFlash2Drafter(network, target)
    target.tap(drafter.feature_layers)
    state, drafter_state = target.new_state(1024), drafter.new_state()
    target.forward(state, mx.zeros(LENGTH, dtype=mx.int32), rows=0)
    width = len(drafter.feature_layers) * model.hidden
    features = mx.zeros((LENGTH, width), dtype=mx.bfloat16)
    drafter.observe(drafter_state, [], features, 0)
    _forget(state, drafter_state)
    text = Text(
        request=GenerationRequest(
            id="count",
            token_ids=(0,),
            sampling=SamplingParams(),
            seed=0,
            max_new_tokens=100,
        ),
        state=state,
        drafter=drafter,
        drafter_state=drafter_state,
        budget=100,
        tokens=[0],
        anchor=mx.array(1, dtype=mx.int32),
    )
    return text, target


def _forget(state: Any, drafter_state: Any) -> None:
    """Cut the graph behind what was read: it is memory, not work of the cycle."""
    for lane in state.lanes:
        if hasattr(lane, "keys"):
            lane.keys, lane.values = map(mx.zeros_like, (lane.keys, lane.values))
        else:
            lane._arrays = [mx.zeros(a.shape, dtype=a.dtype) for a in lane._arrays]
            lane.begin()
    del drafter_state


def _target(model: Geometry, vocab: int) -> MlxLmTarget:
    assert model.delta is not None
    config = {
        "model_type": "qwen3_5",
        "hidden_size": model.hidden,
        "num_hidden_layers": model.depth,
        "intermediate_size": model.intermediate,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.groups,
        "head_dim": model.width,
        "rms_norm_eps": 1e-6,
        "vocab_size": vocab,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": False,
        "full_attention_interval": model.depth // model.layers,
        "linear_num_value_heads": model.delta.value_heads,
        "linear_num_key_heads": model.delta.key_heads,
        "linear_key_head_dim": model.delta.key_width,
        "linear_value_head_dim": model.delta.value_width,
        "linear_conv_kernel_dim": model.delta.taps,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
        },
    }
    network: Any = qwen3_5.Model(qwen3_5.ModelArgs.from_dict(config))
    _described_weights(network, model.bits, model.group_size)
    return MlxLmTarget(
        network,
        TargetFacts(
            model_type="qwen3_5",
            vocab_size=vocab,
            hidden_size=model.hidden,
            num_layers=model.depth,
            context_max=32_768,
        ),
    )


def _network(model: Geometry, draft: DraftGeometry, vocab: int) -> DFlashNetwork:
    config = {
        "architectures": ["DFlash2DraftModel"],
        "hidden_size": model.hidden,
        "head_dim": draft.width,
        "intermediate_size": draft.intermediate,
        "layer_types": ["sliding_attention"] * draft.layers,
        "sliding_window": draft.window,
        "max_position_embeddings": 32_768,
        "num_attention_heads": draft.heads,
        "num_hidden_layers": draft.layers,
        "num_key_value_heads": draft.groups,
        "num_target_layers": model.depth,
        "rms_norm_eps": 1e-6,
        "vocab_size": vocab,
        "dflash_config": {
            "block_size": draft.block,
            "mask_token_id": vocab - 1,
            "target_layer_ids": [5, 19, 33, 47, 61][: draft.features],
            "conv_kernel_size": draft.taps,
            "conv_group_size": draft.conv_group,
            "selector_rank": draft.rank,
            "selector_top_k": draft.count,
        },
    }
    network = DFlashNetwork(parse_config(config, "described"))
    _described_weights(network, draft.bits, draft.group_size)
    return network


def _described_weights(network: Any, bits: int, group: int) -> None:
    """Quantized matrices and weights of 16 bits that are never computed."""
    nn.quantize(
        network,
        group_size=group,
        bits=bits,
        class_predicate=lambda name, module: (
            isinstance(module, nn.Linear | nn.Embedding)
            and module.weight.shape[-1] % group == 0
        ),
    )

    def blank(array: mx.array) -> mx.array:
        floating = mx.issubdtype(array.dtype, mx.floating)
        dtype = mx.bfloat16 if floating else array.dtype
        return mx.zeros(array.shape, dtype=dtype)

    network.update(tree_map(blank, network.parameters()))
    network.eval()
