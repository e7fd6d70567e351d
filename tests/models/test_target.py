# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mlx.core as mx
import pytest
import tiny

from splashpy.errors import ModelKindError
from splashpy.models.architecture import find_backbone
from splashpy.models.target import MlxLmTarget


@pytest.fixture(params=[("llama", False), ("llama", True), ("qwen3", True)])
def target(request: pytest.FixtureRequest) -> MlxLmTarget:
    model_type, tied = request.param
    return tiny.target(model_type, tie_word_embeddings=tied)


def test_the_head_over_the_backbone_equals_the_model(target: MlxLmTarget) -> None:
    ids = mx.arange(9)
    whole = target._model(ids[None])[0]
    ours = target.forward(target.new_state(9), ids, rows=9).logits
    assert mx.array_equal(whole, ours)


def test_logits_of_the_last_rows_equal_the_end_of_all_rows(target: MlxLmTarget) -> None:
    ids = mx.arange(9)
    every = target.forward(target.new_state(9), ids, rows=9).logits
    last = target.forward(target.new_state(9), ids, rows=2).logits
    assert mx.array_equal(every[-2:], last)
    none = target.forward(target.new_state(9), ids, rows=0).logits
    assert none.shape == (0, tiny.VOCAB)


def test_a_block_of_rows_equals_one_row_at_a_time(target: MlxLmTarget) -> None:
    prompt, block = mx.arange(20), mx.arange(100, 108)
    state = target.new_state(32)
    target.forward(state, prompt, rows=0)
    together = target.forward(state, block, rows=8).logits

    state = target.new_state(32)
    target.forward(state, prompt, rows=0)
    apart = [target.forward(state, block[i : i + 1], rows=1).logits for i in range(8)]
    assert mx.array_equal(together, mx.concatenate(apart))


def test_rows_written_after_a_roll_back_see_no_trace_of_those_before(
    target: MlxLmTarget,
) -> None:
    state = target.new_state(32)
    target.forward(state, mx.arange(10), rows=0)
    target.forward(state, mx.arange(200, 207), rows=7)
    state.roll_back(10)
    after = target.forward(state, mx.arange(50, 53), rows=3).logits

    fresh = target.new_state(32)
    target.forward(fresh, mx.arange(10), rows=0)
    expected = target.forward(fresh, mx.arange(50, 53), rows=3).logits
    assert mx.array_equal(after, expected)


def test_a_model_without_decoder_layers_is_refused() -> None:
    with pytest.raises(ModelKindError, match="no list of decoder layers"):
        find_backbone(object())


def test_embed_gives_the_rows_of_the_input_table(target: MlxLmTarget) -> None:
    table = find_backbone(target._model).embed_tokens.weight
    assert mx.array_equal(target.embed(mx.array([3, 7])), table[mx.array([3, 7])])
