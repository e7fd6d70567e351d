# SPDX-License-Identifier: Apache-2.0
"""The contests of every operation, at shapes given as numbers.

Inputs are random and of the size activations have; matrices are random integers with
small scales. Enough sets of weights are made that no cache holds them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import mlx.core as mx

from splashpy.kernels import accept as acceptance
from splashpy.kernels import (
    add_rms_norm,
    attention_rows,
    candidate_selector,
    dynamic_causal_conv,
    gated_delta,
    qmm_rows,
    roofline,
    target_topk,
    top_tokens,
)
from splashpy.kernels.contest import Arguments, Contest

_ROTATED_BYTES = 256 << 20  # of all sets together: more than any cache holds
_MOST_SETS = 8
_EPS = 1e-6
_VOCAB_LOGITS = mx.float32
_OFFERED = 16  # tokens of a drawn draft's row, and of the target's
_CHANCES = 1e-4  # a chance may be off by; tokens beside them must be equal

Make = Callable[[mx.array], Arguments]


def matrix(
    rows: int, outputs: int, inputs: int, bits: int, group: int, dtype: mx.Dtype
) -> Contest:
    """Rows times a quantized matrix."""

    def make(key: mx.array) -> Arguments:
        return _normal(key, rows, inputs, dtype=dtype), _packed(
            key, outputs, inputs, bits, group, dtype
        )

    work = roofline.matrix(rows, outputs, inputs, bits, group)
    return Contest(
        "qmm_rows",
        (rows, outputs, inputs, bits, group, str(dtype)),
        lambda x, packed: [qmm_rows.qmm_rows(x, packed)],
        partial(_sets, make, work.bytes),
        work,
        kernels=("qmm_rows",),
        matrix_units=True,
    )


def gated(
    rows: int, outputs: int, inputs: int, bits: int, group: int, dtype: mx.Dtype
) -> Contest:
    """The inside of a gated MLP."""

    def make(key: mx.array) -> Arguments:
        first, second = mx.random.split(key)
        pair = [
            _packed(k, outputs, inputs, bits, group, dtype) for k in (first, second)
        ]
        return _normal(key, rows, inputs, dtype=dtype), *pair

    work = roofline.gated(rows, outputs, inputs, bits, group)
    return Contest(
        "gated_rows",
        (rows, outputs, inputs, bits, group, str(dtype)),
        lambda x, opening, value: [qmm_rows.gated_rows(x, opening, value)],
        partial(_sets, make, work.bytes),
        work,
        kernels=("gated_rows",),
        matrix_units=True,
    )


def attention(
    rows: int,
    heads: tuple[int, int, int],
    length: int,
    dtype: mx.Dtype,
    *,
    causal: bool = True,
    packed: bool = False,
) -> Contest:
    """Attention of a block.

    Args:
        rows: of the block.
        heads: query heads, key heads and their width.
        length: keys.
        dtype: of activations.
        causal: whether a row sees the keys up to its own only.
        packed: keys and values lie in 8 bits.
    """
    count, groups, width = heads

    def make(key: mx.array) -> Arguments:
        cached: list[Any] = [
            _normal(k, 1, groups, length, width, dtype=dtype) for k in _two(key)
        ]
        if packed:
            cached = [
                attention_rows.PackedHeads(*mx.quantize(part, group_size=64, bits=8))
                for part in cached
            ]
        return _normal(key, 1, count, rows, width, dtype=dtype), *cached

    kernel = "attention_rows_q8" if packed else "attention_rows"
    attend: Callable[..., mx.array] = getattr(attention_rows, kernel)
    work = roofline.attention(rows, count, groups, width, length, 1 if packed else 2)
    queries = mx.zeros((1, count, rows, width), dtype=dtype)
    keys = (1, groups, length, width)
    return Contest(
        kernel,
        attention_rows.shape_of(queries, keys, causal=causal),
        lambda *arguments: [attend(*arguments, width**-0.5, causal=causal)],
        partial(_sets, make, work.bytes),
        work,
        kernels=(kernel, "attention_combine"),
        matrix_units=True,
    )


def add_norm(rows: int, channels: int, dtype: mx.Dtype) -> Contest:
    """A residual addition and its norm."""

    def make(key: mx.array) -> Arguments:
        one, two = _two(key)
        return (
            _normal(key, rows, channels, dtype=dtype),
            _normal(one, rows, channels, dtype=dtype),
            _normal(two, channels, dtype=dtype),
        )

    work = roofline.add_rms_norm(rows, channels)
    return Contest(
        "add_rms_norm",
        (rows, channels, str(dtype)),
        lambda x, r, w: list(add_rms_norm.add_rms_norm(x, r, w, _EPS)),
        partial(_sets, make, work.bytes),
        work,
        kernels=("add_rms_norm",),
    )


def convolutions(
    rows: int, channels: int, taps: int, group: int, dtype: mx.Dtype
) -> list[Contest]:
    """Both sides of a drafter's sublayer."""
    conv = dynamic_causal_conv

    def make(key: mx.array) -> Arguments:
        one, two = _two(key)
        return (
            _normal(key, rows, channels, dtype=dtype),
            _normal(one, rows, 2 * taps, channels // group, dtype=dtype),
            _normal(two, taps, channels, dtype=dtype),
            _normal(one, rows, channels, dtype=dtype),
            _normal(two, channels, dtype=dtype),
        )

    def prepare(x: mx.array, *rest: mx.array) -> list[mx.array]:
        return [conv.conv_prepare(x, *rest[:2], group_size=group)]

    def finish(x: mx.array, *rest: mx.array) -> list[mx.array]:
        predicted, base, residual, weight = rest
        norm = (weight, _EPS)
        made = conv.conv_finish(x, predicted, base, residual, norm, group_size=group)
        return [part for part in made if part is not None]

    def finish_plain(x: mx.array, *rest: mx.array) -> list[mx.array]:
        predicted, base, residual, _ = rest
        return [conv.conv_finish(x, predicted, base, residual, group_size=group)[0]]

    size = (rows, channels, taps, group)
    shape = (rows, channels, taps, str(dtype))
    before = roofline.convolution(*size, finish=False)
    after = roofline.convolution(*size, finish=True)
    return [
        Contest(
            "conv_prepare",
            shape,
            prepare,
            partial(_sets, make, before.bytes),
            before,
            kernels=("conv_prepare",),
        ),
        Contest(
            "conv_finish",
            shape,
            finish,
            partial(_sets, make, after.bytes),
            after,
            kernels=("conv_finish", "conv_finish_plain"),
            also=finish_plain,
        ),
    ]


def choice(slots: int, vocab: int, rows: int, count: int, rank: int) -> Contest:
    """A path through candidates; the head has ``rows`` rows."""

    def make(key: mx.array) -> Arguments:
        one, two = _two(key)
        selector = candidate_selector.Selector(
            _normal(one, vocab, rank, dtype=mx.bfloat16),
            _normal(two, vocab, rank, dtype=mx.bfloat16),
            count,
        )
        gates = 0.1 * _normal(two, slots, rank, dtype=mx.bfloat16)
        return _normal(key, slots, rows, dtype=_VOCAB_LOGITS), gates, selector

    def drawn(logits: mx.array, gates: mx.array, selector: Any) -> list[mx.array]:
        noise = mx.random.gumbel((slots, count), key=mx.random.key(3))
        return list(
            candidate_selector.drawn_path(
                selector, logits, gates, mx.array(0), mx.array(0.8), noise
            )
        )

    work = roofline.selector(slots, rows, count, rank)
    return Contest(
        "candidate_selector",
        (slots, rows, count, rank, str(_VOCAB_LOGITS)),
        lambda logits, gates, selector: [
            candidate_selector.best_path(selector, logits, gates, mx.array(0))
        ],
        partial(_sets, make, work.bytes),
        work,
        tolerance=_CHANCES,
        kernels=("top_shards", "select_walk", "select_draw"),
        also=drawn,
    )


def target_choices(rows: int, vocab: int) -> list[Contest]:
    """The target's own choice: the best token, and a distribution on the best."""

    def make(key: mx.array) -> Arguments:
        return (_normal(key, rows, vocab, dtype=_VOCAB_LOGITS),)

    def distribution(logits: mx.array) -> list[mx.array]:
        made = target_topk.target_topk(logits, target_topk.Cut(1.0, 20, 0.95))
        return [made.probs, made.ids]

    work = roofline.top_tokens(rows, vocab, 1)
    sets = partial(_sets, make, work.bytes)
    dtype = str(_VOCAB_LOGITS)
    return [
        Contest(
            "top_tokens",
            (rows, vocab, 1, dtype),
            lambda logits: list(top_tokens.best_token(logits)),
            sets,
            work,
            tolerance=0.0,
            kernels=("top_shards", "top_merge"),
        ),
        Contest(
            "target_topk",
            (rows, vocab, dtype),
            distribution,
            sets,
            roofline.top_tokens(rows, vocab, 20),
            tolerance=_CHANCES,
            kernels=("top_shards", "target_topk"),
        ),
    ]


def accept(drafted: int) -> Contest:
    """Acceptance of a draft, greedy; a drawn one is compared."""
    rows = drafted + 1

    def make(key: mx.array) -> Arguments:
        tokens = mx.random.randint(0, 1000, (rows,), key=key)
        one, two = _two(key)
        places = mx.arange(_OFFERED, dtype=mx.int32)
        target = target_topk.Distributions(
            mx.broadcast_to(places, (rows, _OFFERED)),
            mx.softmax(_normal(one, rows, _OFFERED), axis=-1),
            mx.zeros(rows, dtype=mx.bool_),
        )
        draft = acceptance.Draft(
            tokens[:-1] % _OFFERED,
            mx.broadcast_to(places, (drafted, _OFFERED)),
            mx.softmax(_normal(two, drafted, _OFFERED), axis=-1),
        )
        return tokens[:-1], tokens, target.broken, draft, target

    def drawn(*arguments: Any) -> list[mx.array]:
        draft, target = arguments[-2:]
        numbers = mx.random.uniform(shape=(rows,), key=mx.random.key(3))
        return [acceptance.accept_sampled(draft, target, numbers[1:], numbers[0], end)]

    end = acceptance.End(budget=1000, stops=(1000, 1001))
    numbers = drafted + 2 * rows + len(end.stops) + 1 + acceptance.HEAD
    work = roofline.Work(bytes=4 * numbers + rows)
    return Contest(
        "accept",
        (drafted,),
        lambda proposal, choices, broken, *_: [
            acceptance.accept_greedy(proposal, choices, broken, end)
        ],
        partial(_sets, make, work.bytes),
        work,
        tolerance=0.0,
        kernels=("accept_greedy", "accept_sampled"),
        also=drawn,
    )


def delta(rows: int, layer: roofline.Delta, dtype: mx.Dtype) -> list[Contest]:
    """The block of a Gated DeltaNet layer, before and in the recurrence."""
    heads = gated_delta.Geometry(
        layer.key_heads, layer.value_heads, layer.key_width, layer.value_width
    )
    keys = (rows, heads.key_heads, heads.key_width)
    values = (rows, heads.value_heads, heads.value_width)

    def make(key: mx.array) -> Arguments:
        one, two = _two(key)
        block = gated_delta.Rows(
            _normal(one, *keys, dtype=dtype) * heads.key_width**-0.5,
            _normal(two, *values, dtype=dtype),
            _normal(one, rows, heads.value_heads, dtype=dtype),
            _normal(two, rows, heads.value_heads, dtype=dtype),
        )
        pending = gated_delta.Pending(
            _normal(one, *heads.shape, dtype=mx.float32), block, rows // 2
        )
        decay = gated_delta.Decay(*_normal(two, 2, heads.value_heads))
        return _normal(key, *keys, dtype=dtype), pending, block, decay

    def make_inputs(key: mx.array) -> Arguments:
        one, two = _two(key)
        return (
            _normal(key, rows, layer.channels, dtype=dtype),
            _normal(one, layer.taps - 1, layer.channels, dtype=dtype),
            _normal(two, layer.channels, layer.taps, dtype=dtype),
        )

    def prework(inputs: mx.array, before: mx.array, weight: mx.array) -> list[mx.array]:
        made = gated_delta.prework(before, 0, inputs, weight, heads)
        return [made.queries, made.keys, made.values, made.window]

    work = roofline.delta_verify(rows, layer, old_rows=rows // 2)
    before = roofline.delta_prework(rows, layer.channels, layer.taps)
    return [
        Contest(
            "gated_delta_verify",
            (*keys, *values[1:], str(dtype)),
            lambda q, *rest: list(gated_delta.verify(rest[0], q, *rest[1:])),
            partial(_sets, make, work.bytes),
            work,
            kernels=("gated_delta_verify", "gated_delta_replay"),
            also=lambda _, pending, __, decay: [gated_delta.replay(pending, decay)],
        ),
        Contest(
            "gated_delta_prework",
            (rows, layer.channels, layer.taps, str(dtype)),
            prework,
            partial(_sets, make_inputs, before.bytes),
            before,
            kernels=("gated_delta_prework",),
        ),
    ]


def _sets(make: Make, size: int) -> Sequence[Arguments]:
    count = max(1, min(_MOST_SETS, _ROTATED_BYTES // max(size, 1)))
    keys = mx.random.split(mx.random.key(7), count)
    made = [make(key) for key in keys]
    mx.eval(list(_arrays(made)))
    return made


def _arrays(value: Any) -> Iterator[mx.array]:
    """Every array in arguments, those inside of dataclasses included."""
    if isinstance(value, mx.array):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _arrays(part)
    elif is_dataclass(value):
        for part in fields(value):
            yield from _arrays(getattr(value, part.name))


def _two(key: mx.array) -> list[mx.array]:
    return list(mx.random.split(key))


def _normal(key: mx.array, *shape: int, dtype: mx.Dtype = mx.float32) -> mx.array:
    return mx.random.normal(shape, key=key).astype(dtype)


def _packed(
    key: mx.array, outputs: int, inputs: int, bits: int, group: int, dtype: mx.Dtype
) -> qmm_rows.Packed:
    words = (outputs, inputs * bits // 32)
    scales = (outputs, inputs // group)
    highest = 2**bits - 1
    scale = 0.02 / highest * mx.random.uniform(0.5, 1.5, scales, key=key)
    return qmm_rows.Packed(
        mx.random.randint(0, 2**32, words, dtype=mx.uint32, key=key),
        scale.astype(dtype),
        (-scale * highest / 2).astype(dtype),
        group,
        bits,
    )
