# SPDX-License-Identifier: Apache-2.0
"""The memory plan: its arithmetic, and what loading does with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from splashpy.engine import loading
from splashpy.engine.loading import Loaded, LoadRequest, load
from splashpy.engine.memory import (
    LEAST_CONTEXT,
    Needs,
    Plan,
    budget_bytes,
    plan_memory,
)
from splashpy.errors import CapacityError, UsageError
from splashpy.package.model_directory import ModelDirectory
from splashpy.protocol import LoadOptions

MIB, GIB = 1 << 20, 1 << 30


def qwen(context: int = 262_144, **changes: Any) -> Needs:
    """Qwen3.8-27B in 4 bits with a packed drafter: 16 layers of 4 heads of 256."""
    values = {
        "target": int(14.2 * GIB),
        "draft": int(1.1 * GIB),
        "row": 64 * 1024,
        "row_q8": 34 * 1024,
        "lane": 187 * MIB,
        "context_max": context,
    }
    return Needs(**{**values, **changes})


def planned(working_set: float, *, kv: Any = "auto", **changes: Any) -> Plan:
    budget = budget_bytes(int(working_set * GIB), None)
    return plan_memory(qwen(**changes), budget, kv=kv)


@pytest.mark.parametrize(
    ("working_set", "bf16", "q8"),
    [(21.3, 29, 55), (27.0, 120, 226), (36.0, 256, 256)],
)
def test_macs_of_32_36_and_48_gb_hold_what_they_are_known_to_hold(
    working_set: float, bf16: int, q8: int
) -> None:
    """Thousands of tokens; what Metal recommends is two thirds to three quarters."""
    assert planned(working_set, kv="bf16").context / 1024 == pytest.approx(bf16, 0.05)
    assert planned(working_set, kv="q8").context / 1024 == pytest.approx(q8, 0.05)


def test_a_mac_of_24_gb_is_refused_with_what_would_fit() -> None:
    with pytest.raises(CapacityError) as raised:
        planned(16.0)
    error = raised.value
    assert error.code == "E-FIT"
    assert "16.1 GB may be used" in error.message
    for part in ("weights 15.2 GB", "draft 1.2 GB", "workspace 3.2 GB", "too much"):
        assert part in error.why
    assert error.fix == ("a smaller model, or a machine with more memory",)


def test_a_context_that_does_not_fit_is_refused_with_the_largest_that_does() -> None:
    budget = budget_bytes(int(21.3 * GIB), None)
    with pytest.raises(CapacityError) as raised:
        plan_memory(qwen(131_072), budget, asked=True, kv="bf16")
    first, *_ = raised.value.fix
    tokens = int(first.split()[1])
    assert plan_memory(qwen(tokens), budget, asked=True, kv="bf16").context == tokens
    with pytest.raises(CapacityError):
        plan_memory(qwen(tokens + 256), budget, asked=True, kv="bf16")
    assert any("--no-draft" in each for each in raised.value.fix)
    assert any("--kv q8" in each for each in raised.value.fix)


def test_rows_are_rounded_only_where_64k_tokens_do_not_fit_otherwise() -> None:
    assert planned(36.0).kv == "bf16"
    assert planned(22.0).kv == "q8"
    assert planned(22.0, row_q8=0).kv == "bf16"
    assert planned(22.0, context=8192).kv == "bf16"


def test_a_person_may_allow_less_but_not_more_than_the_machine_gives() -> None:
    assert budget_bytes(36 * GIB, None) == 35 * GIB
    assert budget_bytes(100 * GIB, None) == 98 * GIB
    assert budget_bytes(36 * GIB, 8 * GIB) == 8 * GIB
    assert budget_bytes(36 * GIB, 99 * GIB) == 35 * GIB
    assert budget_bytes(0, None) == 0
    assert budget_bytes(0, 8 * GIB) == 8 * GIB


@given(
    budget=st.integers(0, 200 * GIB),
    target=st.integers(1, 60 * GIB),
    draft=st.integers(0, 4 * GIB),
    row=st.integers(0, 512 * 1024),
    context=st.integers(2, 262_144),
    asked=st.booleans(),
)
def test_a_plan_never_exceeds_its_budget(
    *, budget: int, target: int, draft: int, row: int, context: int, asked: bool
) -> None:
    needs = Needs(
        target=target,
        draft=draft,
        row=row,
        row_q8=row * 17 // 32,
        context_max=context,
    )
    least = context if asked else min(LEAST_CONTEXT, context)
    formats = ("bf16", "q8") if needs.row_q8 else ("bf16",)
    if all(needs.room(kv, budget) < least for kv in formats):
        with pytest.raises(CapacityError, match="may be used"):
            plan_memory(needs, budget, asked=asked)
        return
    plan = plan_memory(needs, budget, asked=asked)
    assert plan.total <= budget
    assert least <= plan.context <= context


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_model(tmp_path_factory.mktemp("wide"), head_dim=64)


def loaded(model: Path, memory: int = 0, context: int = 512, **options: Any) -> Loaded:
    wishes = LoadOptions(**{"no_draft": "draft" not in options, **options})
    request = LoadRequest.of(
        ModelDirectory.open(model), wishes, context, memory_bytes=memory, paced=False
    )
    return load(request, lambda _: None)


def test_each_wish_about_rows_is_kept(model: Path) -> None:
    assert loaded(model, kv="bf16", memory=3 * GIB).target.facts.kv == "bf16"
    assert loaded(model, kv="q8", memory=3 * GIB).target.facts.kv == "q8"
    assert loaded(model).target.facts.kv == "bf16"


def test_a_model_that_cannot_round_is_told_so_only_where_it_was_asked(
    tmp_path: Path,
) -> None:
    narrow = tiny.write_model(tmp_path)
    with pytest.raises(UsageError, match=r"--kv q8: .* cannot be kept in 8 bits"):
        loaded(narrow, kv="q8")
    assert loaded(narrow).target.facts.kv == "bf16"


def test_the_plan_agrees_with_what_is_allocated(model: Path, tmp_path: Path) -> None:
    """Weights, drafter and rows of a tiny pair, against the arrays themselves."""
    draft = tiny.write_drafter(tmp_path / "draft")
    found = loaded(model, 3 * GIB, draft=str(draft))
    assert found.plan is not None
    needs = found.plan.needs
    assert needs.target == found.target.facts.weight_bytes
    assert needs.draft == found.draft_bytes
    assert needs.row == found.target.facts.kv_bytes_per_token
    state = found.target.new_state(100)
    ids = mx.arange(100) % found.target.facts.vocab_size
    found.target.forward(state, ids, rows=0)
    mx.eval(state.arrays)
    assert state.nbytes == 100 * needs.row
    rounded = loaded(model, kv="q8").target.facts.kv_bytes_per_token
    assert needs.row_q8 == rounded


@pytest.mark.parametrize("kind", ["qwen3_next", "gemma4"])
def test_windows_and_recurrent_states_are_counted(kind: str, tmp_path: Path) -> None:
    found = loaded(tiny.write_model(tmp_path, kind), 3 * GIB)
    assert found.plan is not None
    state = found.target.new_state(400)
    ids = mx.arange(400) % found.target.facts.vocab_size
    found.target.forward(state, ids, rows=0)
    mx.eval(state.arrays)
    grown = 400 * state.row_nbytes
    assert 0 < state.nbytes - grown <= found.plan.needs.lane


def test_what_does_not_fit_is_refused_before_a_weight_is_read(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    wishes = LoadOptions(no_draft=True, max_memory=100_000_000)
    request = LoadRequest.of(ModelDirectory.open(model), wishes, 512)
    with pytest.raises(CapacityError, match=r"100\.0 MB may be used"):
        load(request, lambda event: read.append(event.done))
    assert read == []


def test_the_context_shrinks_to_what_memory_allows(model: Path) -> None:
    whole = loaded(model, 3 * GIB, context=100_000)
    assert whole.plan is not None
    assert whole.target.facts.context_max == 100_000
    needs = whole.plan.needs
    allowed = needs.fixed + 5000 * needs.row
    less = loaded(model, max_memory=allowed, context=100_000, kv="bf16")
    assert less.target.facts.context_max == 5000 // 256 * 256
    with pytest.raises(CapacityError) as raised:
        loaded(
            model,
            max_memory=allowed,
            context=100_000,
            max_context=100_000,
            kv="bf16",
        )
    assert f"--max-context {5000 // 256 * 256}" in raised.value.fix[0]


def test_a_model_without_known_states_is_loaded_without_a_plan(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(self: object) -> None:
        raise AttributeError("no such cache")

    monkeypatch.setattr(loading.MlxLmTarget, "state_sizes", unknown)
    assert loaded(model, 3 * GIB).plan is None


def test_as_many_texts_run_at_a_time_as_could_each_have_some_context() -> None:
    for size, kv in ((21.3, "bf16"), (27.0, "bf16"), (36.0, "bf16"), (21.3, "q8")):
        plan = planned(size, kv=kv)
        assert plan.lanes >= 4
        assert plan.rows(plan.lanes) >= plan.lanes * LEAST_CONTEXT
        assert plan.rows(1) >= plan.context
    assert planned(19.8, kv="bf16").lanes == 1
