# SPDX-License-Identifier: Apache-2.0
"""Rows are rounded where the context would not fit otherwise, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from splashpy.engine.kv_format import LONG_CONTEXT, RESERVE_BYTES, kv_format
from splashpy.engine.loading import Loaded, LoadRequest, load
from splashpy.errors import UsageError
from splashpy.package.model_directory import ModelDirectory
from splashpy.protocol import LoadOptions

GIB = 1 << 30
ROW = 64 * 1024  # Qwen3.8-27B
TAKEN = 15 * GIB  # its weights in 4 bits, and a drafter's


def chosen(memory: float, rows: int = 262_144, *, asked: bool = False) -> str:
    return kv_format(
        rows=rows,
        asked=asked,
        row_nbytes=ROW,
        taken=TAKEN,
        memory_bytes=int(memory * GIB),
    )


def test_64k_tokens_must_fit_where_no_context_was_asked_for() -> None:
    # 15 GiB of weights, 3 GiB aside, 4 GiB of rows.
    assert chosen(22) == "bf16"
    assert chosen(21.9) == "q8"


def test_a_context_that_was_asked_for_must_fit_as_a_whole() -> None:
    assert chosen(30, 262_144, asked=True) == "q8"
    assert chosen(34, 262_144, asked=True) == "bf16"
    assert chosen(19, 16_384, asked=True) == "bf16"


def test_a_short_model_needs_no_more_than_its_own_context() -> None:
    assert chosen(18.5, 8192) == "bf16"


def test_nothing_is_rounded_on_a_machine_that_says_nothing() -> None:
    assert chosen(0) == "bf16"


@given(
    gib=st.integers(1, 64),
    rows=st.integers(1, 2 * LONG_CONTEXT),
    asked=st.booleans(),
)
def test_more_memory_never_rounds_more(*, gib: int, rows: int, asked: bool) -> None:
    less, more = (chosen(g, rows, asked=asked) for g in (gib, gib + 1))
    assert less == "q8" or more == "bf16"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_model(tmp_path_factory.mktemp("wide"), head_dim=64)


def loaded(model: Path, memory: int = 0, **options: Any) -> Loaded:
    wishes = LoadOptions(no_draft=True, **options)
    directory = ModelDirectory.open(model)
    request = LoadRequest.of(directory, wishes, 512, memory_bytes=memory)
    return load(request, lambda _: None)


def test_each_wish_is_kept(model: Path) -> None:
    assert loaded(model, kv="bf16", memory=1).target.facts.kv == "bf16"
    assert loaded(model, kv="q8", memory=GIB << 10).target.facts.kv == "q8"
    assert loaded(model).target.facts.kv == "bf16"


def test_auto_counts_weights_and_rows(model: Path) -> None:
    facts = loaded(model).target.facts
    enough = facts.weight_bytes + RESERVE_BYTES + 512 * facts.kv_bytes_per_token
    assert loaded(model, enough).target.facts.kv == "bf16"
    assert loaded(model, enough - 1).target.facts.kv == "q8"


def test_a_model_that_cannot_is_told_so_only_where_it_was_asked(
    tmp_path: Path,
) -> None:
    narrow = tiny.write_model(tmp_path)
    with pytest.raises(UsageError, match=r"--kv q8: .* cannot be kept in 8 bits"):
        loaded(narrow, kv="q8")
    assert loaded(narrow, memory=1).target.facts.kv == "bf16"
