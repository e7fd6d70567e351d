# SPDX-License-Identifier: Apache-2.0
"""The drafter's door, on the stored random networks."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import mlx.core as mx
import pytest

from splashpy.drafting.dflash2 import DFlash2Drafter, DFlash2State
from splashpy.drafting.drafter import DraftSampling, Proposal
from splashpy.errors import UsageError
from splashpy.kernels.candidate_selector import build_lattice
from splashpy.kernels.noise import gumbel_rows
from splashpy.models.dflash2_load import load_drafter
from splashpy.models.target import TargetFacts

GOLDEN = Path(__file__).parents[1] / "golden" / "dflash2"
GREEDY = DraftSampling()


class Ends:
    """A target's embedding and head; keeps how many rows each call had."""

    def __init__(self, name: str, padding: int = 0):
        arrays = mx.load(str(GOLDEN / name / "target_io.safetensors"))
        assert isinstance(arrays, dict)
        self._embedding = arrays["embed_tokens.weight"]
        self._head = arrays["lm_head.weight"]
        mx.eval(self._embedding, self._head)
        self._padding = padding
        self.embedded: list[int] = []
        self.headed: list[int] = []

    def embed(self, token_ids: mx.array) -> mx.array:
        self.embedded.append(token_ids.shape[0])
        return self._embedding[token_ids % self._embedding.shape[0]]

    def head(self, hidden: mx.array) -> mx.array:
        self.headed.append(hidden.shape[0])
        logits = hidden @ self._head.T
        # Padding rows would win every comparison.
        return mx.pad(logits, [(0, 0), (0, self._padding)], constant_values=1e4)


def drafter(
    name: str = "v2_sliding",
    *,
    ends: Ends | None = None,
    block_size: int | None = None,
    look_ahead: bool = False,
    dtype: mx.Dtype = mx.float32,
) -> DFlash2Drafter:
    raw = json.loads((GOLDEN / name / "config.json").read_text())
    facts = TargetFacts(
        model_type="imaginary",
        vocab_size=raw["vocab_size"],
        hidden_size=raw["hidden_size"],
        num_layers=8,
        context_max=4096,
    )
    network = load_drafter(GOLDEN / name, facts, dtype=dtype)
    return DFlash2Drafter(
        network, ends or Ends(name), block_size=block_size, look_ahead=look_ahead
    )


def features(
    count: int, width: int = 96, seed: int = 0, dtype: mx.Dtype = mx.float32
) -> mx.array:
    return mx.random.normal((count, width), key=mx.random.key(seed)).astype(dtype)


def after_prompt(model: DFlash2Drafter, rows: int = 20) -> DFlash2State:
    state = model.new_state()
    model.observe(state, [], features(rows), 0)
    return state


def draft(
    model: DFlash2Drafter,
    state: DFlash2State,
    sampling: DraftSampling = GREEDY,
    *,
    anchor: int = 3,
    limit: int = 7,
) -> Proposal:
    return model.propose(state, mx.array(anchor), limit, sampling)


@pytest.mark.parametrize("block_size", [-1, 0, 1, 9, 100])
def test_a_block_size_it_was_not_trained_for_is_refused(block_size: int) -> None:
    with pytest.raises(UsageError, match=f"a block of {block_size} rows") as caught:
        drafter(block_size=block_size)
    assert "trained with 8 rows" in caught.value.why


@pytest.mark.parametrize("name", ["v2_sliding", "v1_sliding_default"])
@pytest.mark.parametrize("block_size", [None, 2, 5])
@pytest.mark.parametrize("limit", [1, 3, 7, 50])
def test_only_useful_rows_are_computed(
    name: str, block_size: int | None, limit: int
) -> None:
    ends = Ends(name)
    model = drafter(name, ends=ends, block_size=block_size)
    assert model.block_size == (block_size or 8)
    count = min(limit, model.block_size - 1)
    proposal = draft(model, after_prompt(model), limit=limit)
    assert len(proposal) == count
    assert proposal.token_ids.dtype == mx.int32
    assert ends.headed == [count]
    assert ends.embedded == [1, 1], "the mask row once, then the anchor"


def test_without_room_nothing_is_drafted_or_computed() -> None:
    ends = Ends("v2_sliding")
    model = drafter(ends=ends)
    assert len(draft(model, after_prompt(model), limit=0)) == 0
    assert ends.headed == []


@pytest.mark.parametrize(
    "sampling", [GREEDY, DraftSampling(temperature=0.8, seed=4, position=21, cycle=2)]
)
def test_proposing_twice_gives_the_same_answer(sampling: DraftSampling) -> None:
    model = drafter()
    state = after_prompt(model)
    first, second = draft(model, state, sampling), draft(model, state, sampling)
    assert mx.array_equal(first.token_ids, second.token_ids)
    assert state.position == 20


@pytest.mark.parametrize("name", ["v2_sliding", "v2_causal_mixed"])
def test_cycles_without_a_proposal_change_nothing_later(name: str) -> None:
    model = drafter(name)
    width = len(model.feature_layers) * 32
    rows = features(60, width)
    eager, late = model.new_state(), model.new_state()
    for start, end in ((0, 20), (20, 21), (21, 29), (29, 30), (30, 33), (33, 60)):
        for state in (eager, late):
            model.observe(state, [], rows[start:end], start)
        draft(model, eager)
    assert late.position == 60
    assert late.context.arrays == [], "nothing was projected so far"
    assert mx.array_equal(draft(model, eager).token_ids, draft(model, late).token_ids)
    assert late.queued == 0
    for ours, theirs in zip(eager.context.layers, late.context.layers, strict=True):
        assert mx.array_equal(ours.rows[0], theirs.rows[0])


@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        DraftSampling(temperature=0.7, position=21),
        DraftSampling(temperature=0.7, position=21, coupled=True),
    ],
)
@pytest.mark.parametrize("name", ["v2_sliding", "v1_sliding_default"])
def test_nothing_is_evaluated_while_proposing(
    name: str, sampling: DraftSampling
) -> None:
    model = drafter(name)

    def trace(rows: mx.array, anchor: mx.array) -> mx.array:
        state = model.new_state()
        model.observe(state, [], rows, 0)
        return model.propose(state, anchor, 7, sampling).token_ids

    # While a function is traced, looking at a value raises.
    traced = mx.compile(trace)(features(20), mx.array(3))
    assert traced.shape == (7,)


def test_version_1_proposes_its_best_tokens_even_when_the_target_samples() -> None:
    model = drafter("v1_sliding_default")
    state = after_prompt(model)
    greedy = draft(model, state)
    sampled = draft(model, state, DraftSampling(temperature=1.5, position=21))
    assert mx.array_equal(greedy.token_ids, sampled.token_ids)
    assert sampled.candidates is None
    assert sampled.probs is None


def test_a_drawn_proposal_says_what_it_was_drawn_from() -> None:
    model = drafter()
    state = after_prompt(model)
    seen = set()
    for cycle in range(20):
        sampling = DraftSampling(temperature=3.0, seed=1, position=21, cycle=cycle)
        proposal = draft(model, state, sampling)
        ids, candidates, probs = (
            proposal.token_ids,
            proposal.candidates,
            proposal.probs,
        )
        assert candidates is not None
        assert probs is not None
        assert candidates.shape == probs.shape == (7, 4)
        assert mx.allclose(probs.sum(axis=-1), mx.array(1.0), atol=1e-6)
        chosen = candidates == ids[:, None]
        assert mx.all(chosen.sum(axis=-1) == 1)
        assert mx.all((probs * chosen).sum(axis=-1) > 0)
        seen.add(tuple(ids.tolist()))
    assert len(seen) > 10, "a position drafted again needs fresh noise"


def test_the_rows_of_a_drawn_proposal_follow_its_own_tokens() -> None:
    model = drafter()
    state = after_prompt(model)
    proposal = draft(model, state, DraftSampling(temperature=2.0, position=21))
    assert proposal.candidates is not None
    assert proposal.probs is not None
    expected = _scores_along(model, state, proposal.candidates, proposal.token_ids)
    assert mx.allclose(proposal.probs, mx.softmax(expected / 2.0, axis=-1), atol=1e-5)


def test_a_coupled_draft_uses_the_targets_noise() -> None:
    model = drafter()
    state = after_prompt(model)
    for seed in range(10):
        sampling = DraftSampling(
            temperature=1.5, seed=seed, position=21, cycle=seed, coupled=True
        )
        proposal = draft(model, state, sampling)
        assert proposal.probs is None
        free = draft(model, state, DraftSampling(temperature=1.5, position=21))
        assert free.candidates is not None
        noise = gumbel_rows(seed, 21, 7, 64)
        noise = mx.take_along_axis(noise, free.candidates, axis=-1)
        scores = _scores_along(model, state, free.candidates, proposal.token_ids)
        best = mx.argmax(scores / 1.5 + noise, axis=-1)
        drawn = mx.take_along_axis(free.candidates, best[:, None], axis=-1)[:, 0]
        assert mx.array_equal(drawn, proposal.token_ids)


def _scores_along(
    model: DFlash2Drafter,
    state: DFlash2State,
    candidates: mx.array,
    path: mx.array,
) -> mx.array:
    """[K, C] selector scores, each row after the path's token before it."""
    network, ends = model._network, Ends("v2_sliding")
    mask = mx.array([network.config.mask_token_id])
    block = mx.concatenate([mx.array([3]), mx.repeat(mask, 7)])
    hidden = network(ends.embed(block), state.context)[1:]
    unary = mx.take_along_axis(ends.head(hidden), candidates, axis=-1)
    selector = network.candidate_selector
    lattice = build_lattice(
        unary,
        candidates,
        mx.array(3),
        selector.hidden_projection(hidden),
        (selector.predecessor_codebook, selector.successor_codebook),
    )
    places = mx.argmax(candidates == path[:, None], axis=-1)
    return mx.stack(
        [lattice.row(slot, places[slot - 1] if slot else None) for slot in range(7)]
    )


def test_drafting_leaves_the_global_generator_alone() -> None:
    model = drafter()
    state = after_prompt(model)
    mx.random.seed(8)
    expected = mx.random.uniform(shape=(4,))
    mx.random.seed(8)
    mx.eval(draft(model, state, DraftSampling(temperature=1.0)).token_ids)
    assert mx.array_equal(mx.random.uniform(shape=(4,)), expected)


@pytest.mark.parametrize("name", ["v2_sliding", "v1_sliding_default"])
def test_padding_rows_of_the_head_are_never_drafted(name: str) -> None:
    padded = drafter(name, ends=Ends(name, padding=16))
    plain = drafter(name)
    expected = draft(plain, after_prompt(plain)).token_ids
    assert mx.array_equal(draft(padded, after_prompt(padded)).token_ids, expected)
    sampling = DraftSampling(temperature=1.0, position=21)
    drawn = draft(padded, after_prompt(padded), sampling).token_ids
    assert mx.max(drawn).item() < 64


def test_an_anchor_from_the_padding_rows_is_not_looked_up_outside_the_codebook() -> (
    None
):
    # The imaginary target embeds 127 as 63.
    model = drafter(ends=Ends("v2_sliding", padding=64))
    outside = draft(model, after_prompt(model), anchor=127).token_ids
    last = draft(model, after_prompt(model), anchor=63).token_ids
    assert mx.array_equal(outside, last)


def test_the_look_ahead_walk_may_take_another_path() -> None:
    plain, ahead = drafter(), drafter(look_ahead=True)
    differ = 0
    for seed in range(20):
        paths = []
        for model in (plain, ahead):
            state = model.new_state()
            model.observe(state, [], features(15, seed=seed), 0)
            paths.append(draft(model, state).token_ids.tolist())
        differ += paths[0] != paths[1]
    assert 0 < differ < 20


def test_rows_may_start_above_zero_but_not_leave_a_gap() -> None:
    model = drafter()
    state = model.new_state()
    model.observe(state, [1, 2, 3], None, 0)
    model.observe(state, [4], features(5), 40)
    assert state.position == 45
    with pytest.raises(ValueError, match="rows from 46 do not follow row 45"):
        model.observe(state, [5], features(1), 46)
    draft(model, state)
    with pytest.raises(ValueError, match="rows from 44 do not follow row 45"):
        model.observe(state, [5], features(1), 44)


def test_features_of_another_width_are_a_mistake() -> None:
    model = drafter()
    with pytest.raises(ValueError, match=r"expected \[n, 96\]"):
        model.observe(model.new_state(), [], features(4, 64), 0)


def test_a_long_prompt_leaves_only_visible_rows_in_the_queue() -> None:
    model = drafter()
    rows = features(500)
    whole, chunked = model.new_state(), model.new_state()
    model.observe(whole, [], rows, 0)
    for start in range(0, 500, 20):
        model.observe(chunked, [], rows[start : start + 20], start)
        assert chunked.queued <= 11 + 20
    assert chunked.position == 500
    expected = draft(model, whole).token_ids
    assert mx.array_equal(draft(model, chunked).token_ids, expected)


def test_features_of_a_drafter_without_a_window_do_not_pile_up() -> None:
    model = drafter("v2_full")
    state = model.new_state()
    for start in range(0, 4096, 256):
        model.observe(state, [], features(256, 192), start)
        assert state.queued <= 512
    assert len(state.context.layers[0]) >= 4096 - 512


@pytest.mark.parametrize("name", ["v2_sliding", "v2_full"])
def test_many_cycles_without_a_proposal_do_not_pile_up(name: str) -> None:
    model = drafter(name)
    width = 96 if name == "v2_sliding" else 192
    state = model.new_state()
    for start in range(1000):
        model.observe(state, [], features(1, width), start)
        assert len(state.queue) <= 64
    assert state.position == 1000


def test_memory_grows_with_the_text_not_with_the_largest_context() -> None:
    model = drafter("v2_full")
    state = model.new_state()
    assert state.nbytes == 0
    model.observe(state, [], features(10, 192), 0)
    mx.eval(draft(model, state).token_ids)
    row_bytes = 2 * 2 * 2 * 16 * 4  # layers, keys and values, heads, width, float32
    assert 0 < state.nbytes <= 64 * row_bytes
    model.observe(state, [], features(1000, 192), 10)
    mx.eval(draft(model, state).token_ids)
    assert 1010 * row_bytes < state.nbytes <= 2 * (1010 + 8) * row_bytes


@pytest.mark.parametrize("bits", [None, 4])
def test_float16_features_keep_the_drafts(bits: int | None) -> None:
    raw = json.loads((GOLDEN / "v2_full" / "config.json").read_text())
    facts = TargetFacts(
        model_type="imaginary",
        vocab_size=raw["vocab_size"],
        hidden_size=64,
        num_layers=8,
        context_max=4096,
    )
    drafts = []
    for dtype, kind in ((mx.float32, mx.float32), (mx.bfloat16, mx.float16)):
        network = load_drafter(GOLDEN / "v2_full", facts, bits=bits, dtype=dtype)
        model = DFlash2Drafter(network, Ends("v2_full"))
        for seed in range(30):
            state = model.new_state()
            model.observe(state, [], features(10, 192, seed, kind), 0)
            drafts.append(draft(model, state, anchor=seed).token_ids)
    same = mx.stack(drafts[:30]) == mx.stack(drafts[30:])
    # A random network has small margins; measured 0.94 to 0.98.
    assert same.astype(mx.float32).mean().item() > 0.85
    assert same[:, 0].astype(mx.float32).mean().item() > 0.9


def test_a_drafter_loaded_on_one_thread_drafts_on_another() -> None:
    model = drafter()
    drafts: list[object] = []

    def work() -> None:
        drafts.append(draft(model, after_prompt(model)).token_ids.tolist())
        drafts.append(draft(model, after_prompt(model)).token_ids.tolist())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert drafts == [draft(model, after_prompt(model)).token_ids.tolist()] * 2
