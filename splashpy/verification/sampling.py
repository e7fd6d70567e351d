# SPDX-License-Identifier: Apache-2.0
"""From the target's logits to the distribution a token is drawn from.

One function for plain decoding, verification and every fallback: "the same as the
target alone" means the same as this, in this order: logit bias, penalties,
temperature, top-k, top-p, min-p.

Shapes: R rows, V vocabulary, W history window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import mlx.core as mx

from splashpy.errors import UsageError

# Below this the noise decides nothing between tokens a float32 can tell apart.
_GREEDY_BELOW = 1e-5
# Logits are float32 numbers up to 3e38: what is applied to them, the count of a whole
# context times a penalty included, must leave them finite.
_LARGEST = 1e9
_SIZES = f"at most {_LARGEST:.0e} in size"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Every choice made; the fields are those of :class:`splashpy.protocol.Sampling`.

    Raises:
        UsageError: a value lies outside its range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            fits = not isinstance(value, float) or _fits(value)
            _require(item.name, value, fits, f"a finite number, {_SIZES}")
        biases = [value for _, value in self.logit_bias]
        _require(
            "logit_bias", biases, all(map(_fits, biases)), f"finite numbers, {_SIZES}"
        )
        _require("temperature", self.temperature, self.temperature >= 0, "0 or more")
        _require("top_k", self.top_k, self.top_k >= 0, "0 (off) or more")
        _require("top_p", self.top_p, 0 < self.top_p <= 1, "above 0, at most 1")
        _require("min_p", self.min_p, 0 <= self.min_p < 1, "0 or more, below 1")
        penalty = self.repetition_penalty
        _require("repetition_penalty", penalty, penalty >= 1 / _LARGEST, "above 0")
        window = self.penalty_window
        _require("penalty_window", window, window is None or window > 0, "1 or more")

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature < _GREEDY_BELOW

    @property
    def looks_back(self) -> bool:
        """Whether earlier tokens change the distribution."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )


def _fits(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= _LARGEST


def _require(name: str, value: object, holds: bool, allowed: str) -> None:  # noqa: FBT001
    if not holds:
        raise UsageError(f"{name} is {value}; allowed: {allowed}")


def score(
    logits: mx.array, params: SamplingParams, history: mx.array | None = None
) -> mx.array:
    """The processed log-weights of every row.

    softmax(score) is the distribution the row's token is drawn from; at temperature 0
    its argmax is the token.

    Args:
        logits: [R, V] float32, the target's own.
        params: what to apply.
        history: [R, W] int32, the tokens each row looks back on, V where there is
            none (see :func:`row_histories`); needed when ``params.looks_back``.

    Returns:
        [R, V] float32, -inf where a token cannot be drawn.
    """
    logits = adjust(logits, params, history)
    if params.greedy:
        return logits
    # Relative to the best token, so that a low temperature cannot overflow.
    logits = logits - mx.max(logits, axis=-1, keepdims=True)
    logits = logits / params.temperature
    vocab = logits.shape[-1]
    if 0 < params.top_k < vocab:
        kth = mx.min(mx.topk(logits, params.top_k, axis=-1), axis=-1, keepdims=True)
        count = mx.full((logits.shape[0], 1), params.top_k)
        logits = _keep_largest(logits, kth, count)
    if params.top_p < 1:
        logits = _keep_mass(logits, params.top_p, params.top_k)
    if params.min_p > 0:
        best = mx.max(logits, axis=-1, keepdims=True)
        low = logits < best + mx.log(mx.array(params.min_p))
        logits = mx.where(low, -mx.inf, logits)
    return logits


def adjust(
    logits: mx.array, params: SamplingParams, history: mx.array | None = None
) -> mx.array:
    """The part of :func:`score` before the temperature: bias and penalties."""
    if params.logit_bias:
        logits = logits + _bias_row(params.logit_bias, logits.shape[-1])
    if params.looks_back:
        if history is None:
            raise ValueError("penalties need the history of every row")
        logits = _penalize(logits, params, history)
    return logits


def row_histories(
    known: Sequence[int],
    anchor: mx.array,
    drafts: mx.array,
    window: int | None,
    vocab: int,
) -> mx.array:
    """The tokens each verify row looks back on: its own prefix, nothing later.

    Row j decides the token after ``known + anchor + drafts[:j]`` and sees the last
    ``window`` tokens of exactly that.

    Args:
        known: committed tokens before the anchor.
        anchor: [] int32, possibly unevaluated.
        drafts: [K] int32, possibly unevaluated.
        window: tokens to look back on; None is all of them.
        vocab: V, used to mark places before the first token.

    Returns:
        [K + 1, W] int32.
    """
    rows = drafts.shape[0] + 1
    width = len(known) + rows
    width = width if window is None else min(window, width)
    before = list(known[-(width - 1) :]) if width > 1 else []
    padding = [vocab] * (width - 1 - len(before))
    tokens = mx.concatenate(
        [mx.array([*padding, *before], dtype=mx.int32), anchor[None], drafts]
    )
    return tokens[mx.arange(rows)[:, None] + mx.arange(width)[None]]


def _bias_row(bias: Sequence[tuple[int, float]], vocab: int) -> mx.array:
    outside = [token for token, _ in bias if not 0 <= token < vocab]
    if outside:
        raise UsageError(
            f"logit_bias names token {outside[0]}; this model has ids 0 to {vocab - 1}"
        )
    ids = mx.array([token for token, _ in bias])
    return mx.zeros(vocab).at[ids].add(mx.array([float(value) for _, value in bias]))


def _penalize(logits: mx.array, params: SamplingParams, history: mx.array) -> mx.array:
    rows, vocab = logits.shape
    counts = mx.zeros((rows, vocab + 1))  # last column: places before the first token
    counts = counts.at[mx.arange(rows)[:, None], history].add(1.0)[:, :vocab]
    seen = counts > 0
    if params.repetition_penalty != 1:
        factor = params.repetition_penalty
        scaled = mx.where(logits > 0, logits / factor, logits * factor)
        logits = mx.where(seen, scaled, logits)
    return (
        logits
        - params.presence_penalty * seen.astype(mx.float32)
        - params.frequency_penalty * counts
    )


def _keep_mass(logits: mx.array, top_p: float, top_k: int) -> mx.array:
    """Keep the smallest set whose mass reaches top_p, the crossing token included."""
    vocab = logits.shape[-1]
    if 0 < top_k < vocab:  # everything else is -inf already: sort the kept ones only
        ordered = -mx.sort(-mx.topk(logits, top_k, axis=-1), axis=-1)
    else:
        ordered = -mx.sort(-logits, axis=-1)
    mass = mx.softmax(ordered, axis=-1, precise=True)
    before = mx.cumsum(mass, axis=-1) - mass
    count = mx.maximum(mx.sum(before < top_p, axis=-1, keepdims=True), 1)
    last = mx.take_along_axis(ordered, count - 1, axis=-1)
    return _keep_largest(logits, last, count)


def _keep_largest(logits: mx.array, last: mx.array, count: mx.array) -> mx.array:
    """Keep ``count`` tokens per row, the smallest being ``last``; ties: lower id."""
    above = logits > last
    ties = logits == last
    room = count - mx.sum(above, axis=-1, keepdims=True)
    kept = above | (ties & (mx.cumsum(ties.astype(mx.int32), axis=-1) <= room))
    return mx.where(kept, logits, -mx.inf)
