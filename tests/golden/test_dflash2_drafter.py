# SPDX-License-Identifier: Apache-2.0
"""Every stored drafter case, number by number and through the drafter's door."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.drafter import DraftSampling
from splashpy.kernels.candidate_selector import build_lattice
from splashpy.kernels.top_tokens import top_tokens

if TYPE_CHECKING:
    from tests.golden.conftest import DrafterCase

VERSION_1 = ["v1_full", "v1_sliding_default"]
VERSION_2 = [
    "v2_bf16",
    "v2_causal_mixed",
    "v2_full",
    "v2_scaled",
    "v2_sliding",
    "v2_sliding_one_row",
    "v2_sliding_short",
]
every_case = pytest.mark.parametrize(
    "drafter_case", [*VERSION_1, *VERSION_2], indirect=True
)
# The others store candidates and paths, but no scores.
every_case_with_scores = pytest.mark.parametrize(
    "drafter_case",
    [case for case in VERSION_2 if case not in ("v2_bf16", "v2_sliding_one_row")],
    indirect=True,
)


def assert_close(actual: mx.array, expected: mx.array, tolerance: float) -> None:
    actual, expected = actual.astype(mx.float32), expected.astype(mx.float32)
    np.testing.assert_allclose(
        np.array(actual), np.array(expected), rtol=0, atol=tolerance
    )


@every_case
def test_hidden_rows_logits_and_context_agree(drafter_case: DrafterCase) -> None:
    case, network = drafter_case, drafter_case.network
    context = network.new_context()
    for n, cycle in enumerate(case.cycles):
        assert context.position == cycle["context_start"]
        network.extend(context, case.array(n, "target_hidden"))
        assert context.position == cycle["block_start"]

        scale = network.config.input_embedding_scale
        embeddings = case.target.embed(case.array(n, "block")) * scale
        hidden = network(embeddings, context)
        logits = network.transform(case.target.head(hidden[1:]).astype(mx.float32))

        assert_close(hidden, case.array(n, "hidden"), case.tolerance)
        assert_close(logits, case.array(n, "logits"), case.tolerance)
        for layer, held in enumerate(cycle.get("cache", [])):
            keys, values = context.layers[layer].rows
            assert keys.shape[2] == held["rows"]
            assert context.position - held["rows"] == held["first_position"]
            assert_close(keys[0], case.array(n, f"cache_k.{layer}"), case.tolerance)
            assert_close(values[0], case.array(n, f"cache_v.{layer}"), case.tolerance)


@pytest.mark.parametrize("drafter_case", ["v2_bf16"], indirect=True)
def test_bf16_is_as_near_to_exact_arithmetic_as_dflash(
    drafter_case: DrafterCase,
) -> None:
    case, network = drafter_case, drafter_case.network
    context = network.new_context()
    for n in range(len(case.cycles)):
        network.extend(context, case.array(n, "target_hidden"))
        hidden = network(case.target.embed(case.array(n, "block")), context)
        logits = case.target.head(hidden[1:])
        # dflash's own distances are 0.0498 and 0.0534.
        assert_close(hidden, case.array(n, "hidden_exact"), 0.055)
        assert_close(logits, case.array(n, "logits_exact"), 0.055)


@every_case
def test_the_drafter_proposes_the_stored_path(drafter_case: DrafterCase) -> None:
    case = drafter_case
    drafter = DFlash2Drafter(case.network, case.target)
    state = drafter.new_state()
    for n, cycle in enumerate(case.cycles):
        features = case.array(n, "target_hidden")
        drafter.observe(state, [], features, cycle["context_start"])
        assert state.position == cycle["block_start"]
        proposal = drafter.propose(
            state,
            mx.array(cycle["anchor"]),
            cycle["block_rows"] - 1,
            DraftSampling(position=cycle["block_start"] + 1),
        )
        assert proposal.token_ids.tolist() == case.array(n, "greedy_path").tolist()
        assert proposal.probs is None


@pytest.mark.parametrize("drafter_case", VERSION_2, indirect=True)
def test_the_same_candidates_are_considered(drafter_case: DrafterCase) -> None:
    case = drafter_case
    for n in range(len(case.cycles)):
        ids, _ = top_tokens(case.array(n, "logits"), case.network.config.selector_top_k)
        by_id = mx.sort(ids, axis=-1)
        assert by_id.tolist() == case.array(n, "candidates_by_id").tolist()


@every_case_with_scores
def test_candidates_scores_and_proposal_distributions_agree(
    drafter_case: DrafterCase,
) -> None:
    case, network = drafter_case, drafter_case.network
    selector = network.candidate_selector
    codebooks = (selector.predecessor_codebook, selector.successor_codebook)
    for n, cycle in enumerate(case.cycles):
        gate = selector.hidden_projection(case.array(n, "hidden")[1:])
        assert_close(gate, case.array(n, "hidden_projected"), case.tolerance)

        ids, unary = top_tokens(case.array(n, "logits"), network.config.selector_top_k)
        by_id = mx.argsort(ids, axis=-1)
        ids = mx.take_along_axis(ids, by_id, axis=-1)
        unary = mx.take_along_axis(unary, by_id, axis=-1)
        assert ids.tolist() == case.array(n, "candidates_by_id").tolist()
        assert_close(unary, case.array(n, "unary"), case.tolerance)

        lattice = build_lattice(unary, ids, mx.array(cycle["anchor"]), gate, codebooks)
        greedy, sampled = None, None
        for slot in range(ids.shape[0]):
            scores = lattice.row(slot, greedy)
            stored = case.array(n, "scores_greedy_path")[slot]
            assert_close(scores, stored, case.tolerance)
            greedy = _place(ids[slot], case.array(n, "greedy_path")[slot])

            q = mx.softmax(lattice.row(slot, sampled) / 0.7)
            assert_close(q, case.array(n, "q_T0.7")[slot], case.tolerance)
            sampled = _place(ids[slot], case.array(n, "sampled_path_T0.7")[slot])


def _place(candidates: mx.array, token: mx.array) -> mx.array:
    return mx.argmax(candidates == token)
