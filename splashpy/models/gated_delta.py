# SPDX-License-Identifier: Apache-2.0
"""Run the recurrence of Gated DeltaNet layers again, from the block's own inputs.

What the recurrence reads is the output of three small modules: the projections of
decay and learning rate, and the causal convolution, whose input is also what the
window of the convolution is cut from. Each of them gets a throw-away subclass of its
own class that keeps its last call, as taps do (``tap.py``). mlx-lm's forward runs
unchanged, and no weight is read again to go back to a row inside a block. All layers
run in one call, as a batch.

For each row, with a key k, a value v and the state S of one head, in float32:

    S <- g S + k (beta (v - S g k)),  g from the decay, beta from the learning rate.

The queries take no part in the state.

Shapes: N recurrent layers, T rows, C convolution channels, W taps, Hk/Hv key/value
heads, D head width.
Source: mlx-lm 0.32.2, models/qwen3_5.py, qwen3_next.py and gated_delta.py (MIT).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.gated_delta import compute_g, gated_delta_update, normalize_qk
from mlx_lm.models.qwen3_5 import GatedDeltaNet
from mlx_lm.models.qwen3_next import Qwen3NextGatedDeltaNet

from splashpy.kernels import metal
from splashpy.models.delta_rows import BlockCall, DeltaRows
from splashpy.models.recurrent_lane import Arrays

Replay = Callable[[Sequence[Arrays], int], Sequence[Sequence[mx.array]]]
"""Of every layer: the arrays before a block, and a number of its rows, to the arrays
after those rows. Builds a graph and evaluates nothing."""

_SEPARATE = ("in_proj_a", "in_proj_b")
_FUSED = ("in_proj_ba",)


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of a module."""

    input: mx.array
    output: mx.array

    def of(self, text: int) -> _Call:
        """The part of one text, where several were read."""
        return _Call(self.input[text : text + 1], self.output[text : text + 1])


Calls = dict[str, _Call]
"""By name, the last call of every watched module of one layer."""


class DeltaRecorder:
    """Keeps what the recurrences of a model read in the last pass.

    Args:
        layers: the Gated DeltaNets of Qwen3.5 or Qwen3-Next, of one geometry.
    """

    def __init__(self, layers: Sequence[nn.Module]):
        self._layers: list[Any] = list(layers)
        self._calls: list[Calls] = [{} for _ in layers]
        self._gates = _SEPARATE if isinstance(layers[0], GatedDeltaNet) else _FUSED
        self._watched: list[nn.Module] = []
        for layer, calls in zip(layers, self._calls, strict=True):
            for name in ("conv1d", *self._gates):
                module = getattr(layer, name)
                module.__class__ = _watched_class(type(module), name, calls)
                self._watched.append(module)
        # [N, 1, Hv], as a batch of one row each.
        self._log_decay = mx.stack([layer.A_log for layer in self._layers])[:, None]
        self._bias = mx.stack([layer.dt_bias for layer in self._layers])[:, None]
        mx.eval(self._log_decay, self._bias)
        self._compiled: dict[int, Callable[..., list[mx.array]]] = {}
        self._blocks: list[DeltaRows] = []
        self._block_calls: list[BlockCall | None] = [None for _ in layers]

    def use_row_kernels(self) -> None:
        """Let blocks of Qwen3.5's layers run as kernels, where they are allowed to."""
        if not isinstance(self._layers[0], GatedDeltaNet) or self._blocks:
            return
        for index, layer in enumerate(self._layers):
            block = DeltaRows(layer)
            layer.__class__ = _rows_class(type(layer), index, block, self._block_calls)
            self._blocks.append(block)
            self._watched.append(layer)

    def take(self) -> Replay:
        """A replay of the last pass; the recorder forgets the pass itself."""
        blocks = list(self._block_calls)
        if all(blocks):
            self.drop()
            return partial(self._after_blocks, blocks)
        taken = [dict(calls) for calls in self._calls]
        self.drop()
        return partial(self._replay, taken)

    def take_each(self, texts: int) -> list[Replay]:
        """As :meth:`take`, of a pass that read several texts: one for each."""
        taken = [
            [{n: call.of(text) for n, call in calls.items()} for calls in self._calls]
            for text in range(texts)
        ]
        self.drop()
        return [partial(self._replay, calls) for calls in taken]

    def drop(self) -> None:
        """Forget the last pass, so that its arrays can be freed."""
        for calls in self._calls:
            calls.clear()
        self._block_calls[:] = [None for _ in self._layers]

    def remove(self) -> None:
        """Give every module its own class back."""
        for module in self._watched:
            module.__class__ = type(module).__mro__[1]
        self._watched.clear()
        self._blocks.clear()
        self.drop()

    def _replay(
        self, taken: Sequence[Calls], before: Sequence[Arrays], rows: int
    ) -> list[list[mx.array]]:
        windows = [_window(calls["conv1d"], rows) for calls in taken]
        if rows not in self._compiled:
            self._compiled[rows] = mx.compile(partial(self._states, rows))
        states = self._compiled[rows](
            [calls["conv1d"].output for calls in taken],
            [[calls[name].output for name in self._gates] for calls in taken],
            [self._state(arrays) for arrays in before],
        )
        return [list(pair) for pair in zip(windows, states, strict=True)]

    def _after_blocks(
        self, calls: list[Any], before: Sequence[Arrays], rows: int
    ) -> list[list[mx.array]]:
        """A replay of blocks that ran as kernels: their own record is enough."""
        pairs = zip(self._blocks, calls, strict=True)
        return [list(block.after(call, rows)) for block, call in pairs]

    def _states(
        self,
        rows: int,
        convolved: list[mx.array],
        gates: list[list[mx.array]],
        states: list[mx.array],
    ) -> list[mx.array]:
        """The states after ``rows`` rows of the block.

        Args:
            rows: how many are kept.
            convolved: of every layer, [1, T, C].
            gates: of every layer, the outputs of its projections.
            states: of every layer before the block, [1, Hv, D, D].
        """
        layer = self._layers[0]
        # Queries come first among the channels and are left out.
        both = mx.concatenate(convolved)[:, :rows, layer.key_dim :]
        keys, values = mx.split(nn.silu(both), [layer.key_dim], axis=-1)
        keys = mx.unflatten(keys, -1, (layer.num_k_heads, -1))
        scale = layer.head_k_dim**-0.5
        _, keys = normalize_qk(keys, keys, inv_scale=scale, eps=1e-6)
        values = mx.unflatten(values, -1, (layer.num_v_heads, -1))
        after = self._recur(
            keys, values, *self._rates(gates, rows), mx.concatenate(states)
        )
        parts: Any = mx.split(after, len(states))
        return parts

    def _rates(
        self, gates: list[list[mx.array]], rows: int
    ) -> tuple[mx.array, mx.array]:
        """What decay and learning rate are made from, [N, T, Hv] each."""
        parts = [mx.concatenate(list(p))[:, :rows] for p in zip(*gates, strict=True)]
        if len(parts) == 2:
            return parts[0], parts[1]
        # One row per key head: the rates of its value heads, then their decays.
        pairs = mx.unflatten(parts[0], -1, (self._layers[0].num_k_heads, -1))
        rate, decay = mx.split(pairs, 2, axis=-1)
        return decay.flatten(-2), rate.flatten(-2)

    def _recur(
        self,
        keys: mx.array,
        values: mx.array,
        decay: mx.array,
        rate: mx.array,
        states: mx.array,
    ) -> mx.array:
        """[N, Hv, D, D] after all rows; keys stand for the queries too."""
        if metal.use_metal():
            _, after = gated_delta_update(
                keys, keys, values, decay, rate, self._log_decay, self._bias, states
            )
            return after
        # mlx-lm loops over the rows here; this sums in the same order in one call.
        gates = compute_g(self._log_decay, decay, self._bias), mx.sigmoid(rate)
        keys, values, decay, rate = (
            part.astype(mx.float32) for part in (keys, values, *gates)
        )
        return mx.fast.gated_delta_update(keys, keys, values, decay, rate, states)[1]

    def _state(self, arrays: Arrays) -> mx.array:
        if arrays[1] is not None:
            return arrays[1]
        layer = self._layers[0]
        heads = (1, layer.num_v_heads, layer.head_v_dim, layer.head_k_dim)
        return mx.zeros(heads, dtype=mx.float32)


def find_delta_layers(layers: Sequence[nn.Module]) -> list[nn.Module]:
    """The Gated DeltaNets among decoder layers whose recurrence is known."""
    found = [getattr(layer, "linear_attn", None) for layer in layers]
    known = (GatedDeltaNet, Qwen3NextGatedDeltaNet)
    return [module for module in found if isinstance(module, known)]


def _window(conv: _Call, rows: int) -> mx.array:
    """The convolution's window [1, W - 1, C] after ``rows`` rows."""
    kept = conv.input.shape[1] - conv.output.shape[1]
    return conv.input[:, rows : rows + kept]


def _watched_class(parent: type[nn.Module], name: str, calls: Calls) -> type[nn.Module]:
    def call(self: nn.Module, x: mx.array) -> mx.array:
        out = parent.__call__(self, x)
        calls[name] = _Call(x, out)
        return out

    return type(f"Watched{parent.__name__}", (parent,), {"__call__": call})


def _rows_class(
    parent: type[nn.Module],
    index: int,
    block: DeltaRows,
    calls: list[BlockCall | None],
) -> type[nn.Module]:
    def call(
        self: nn.Module, inputs: mx.array, mask: Any = None, cache: Any = None
    ) -> mx.array:
        if not block.takes(inputs, mask, cache):
            return parent.__call__(self, inputs, mask, cache)
        out, calls[index] = block(inputs, cache)
        return out

    return type(f"Rows{parent.__name__}", (parent,), {"__call__": call})
