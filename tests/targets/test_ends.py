# SPDX-License-Identifier: Apache-2.0
"""What enters and leaves a target: embedding, features, head. Nothing else changes."""

from __future__ import annotations

import mlx.core as mx
import pytest
import tiny
from mlx.utils import tree_flatten

from splashpy.models.architecture import find_backbone
from splashpy.models.target import MlxLmTarget, check_taps

IDS = mx.arange(3, 12)


def logits(target: MlxLmTarget) -> mx.array:
    return target.forward(target.new_state(16), IDS, rows=len(IDS)).logits


def test_tap_identity(target: MlxLmTarget) -> None:
    plain = logits(target)
    target.tap((0, 2))
    assert mx.array_equal(plain, logits(target))
    target.tap(())
    assert check_taps(target, (1, 3)) == ""
    target.tap(())


def test_a_feature_is_the_stream_that_reaches_the_final_norm(
    target: MlxLmTarget,
) -> None:
    target.tap((3,))  # the last layer of four
    forward = target.forward(target.new_state(16), IDS, rows=len(IDS))
    target.tap(())
    assert forward.features is not None
    normed = find_backbone(target._model).norm(forward.features)
    ours = target._transform(target.head(normed))
    assert mx.allclose(ours, forward.logits, atol=1e-5)


def test_head_match(target: MlxLmTarget) -> None:
    assert not target._whole
    assert mx.array_equal(target._model(IDS[None])[0], logits(target))


def test_lanes_stand_for_the_caches_the_model_makes_itself(
    target: MlxLmTarget,
) -> None:
    """Masks are made from a cache before a layer writes to it, with rows held or not.

    Windows of 8 rows are full after the first block.
    """
    caches, state = target.own_caches(), target.new_state(32)
    for block in (mx.arange(20), mx.arange(60, 66), mx.arange(99, 102)):
        theirs = target._model(block[None], cache=caches)[0]
        ours = target.forward(state, block, rows=len(block)).logits
        assert mx.array_equal(ours, theirs)


def test_logits_of_the_last_rows_equal_the_end_of_all_rows(
    target: MlxLmTarget,
) -> None:
    last = target.forward(target.new_state(16), IDS, rows=2).logits
    assert mx.array_equal(logits(target)[-2:], last)


def test_parameters_unchanged(architecture: str, target: MlxLmTarget) -> None:
    untouched = dict(tree_flatten(tiny.model(architecture).parameters()))
    target.tap((0, 1, 2, 3))
    logits(target)
    tapped = dict(tree_flatten(target._model.parameters()))
    target.tap(())
    assert tapped.keys() == untouched.keys()
    assert all(mx.array_equal(tapped[name], untouched[name]) for name in untouched)


def test_removing_every_tap_restores_every_class(architecture: str) -> None:
    untouched = [type(m) for _, m in tiny.model(architecture).named_modules()]
    target = tiny.target(architecture)
    target.tap((0, 1, 2, 3))
    target.tap(())
    if target._recorder:
        target._recorder.remove()
    assert [type(m) for _, m in target._model.named_modules()] == untouched


def test_bytes_of_state_per_token_are_those_the_state_takes(
    target: MlxLmTarget,
) -> None:
    short, long = target.new_state(32), target.new_state(96)
    for state in (short, long):
        target.forward(state, mx.arange(32), rows=0)
    assert long.row_nbytes == target.facts.kv_bytes_per_token
    grown = (long.nbytes - short.nbytes) / 64
    # A window reserves room for as many rows as the text may have, at most its own.
    assert grown >= target.facts.kv_bytes_per_token


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", ["qwen3_5", "gemma4", "muse_glimmer", "minimax"])
def test_a_tied_head_is_found(*, family: str, tied: bool) -> None:
    target = tiny.target(family, tie_word_embeddings=tied)
    assert not target._whole
    names = [name for name, _ in tree_flatten(target._model.parameters())]
    assert any("lm_head" in name for name in names) != tied


def test_the_drafter_reads_gemmas_embedding_scaled() -> None:
    target = tiny.target("gemma4")
    rows = find_backbone(target._model).embed_tokens(IDS)
    assert mx.array_equal(target.embed(IDS), rows * 64**0.5)


def test_the_drafter_reads_muses_embedding_as_it_is_stored() -> None:
    target = tiny.target("muse_glimmer")
    table = find_backbone(target._model).embed_tokens.weight
    assert mx.array_equal(target.embed(IDS), table[IDS])


@pytest.mark.parametrize("family", ["gemma4", "muse_glimmer"])
def test_the_drafter_borrows_the_head_without_the_targets_own_cap(family: str) -> None:
    target = tiny.target(family)
    hidden = 50 * mx.random.normal((4, 64), key=mx.random.key(1))
    cap = {"gemma4": 3.0, "muse_glimmer": 20.0}[family]
    assert mx.abs(target.head(hidden)).max().item() > cap
    assert mx.abs(target._transform(target.head(hidden))).max().item() <= cap
