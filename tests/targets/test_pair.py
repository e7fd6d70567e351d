# SPDX-License-Identifier: Apache-2.0
"""A pair on disk, loaded and proved as a person would."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny

from splashpy.bench.lossless import explain
from splashpy.bench.session import Session
from splashpy.cli import main
from splashpy.drafting.plain import PlainDrafter
from splashpy.package.model_directory import ModelDirectory
from splashpy.protocol import LoadOptions

FAMILIES = ("qwen3_5", "qwen3_5_moe", "gemma4")


@pytest.fixture(scope="module", params=FAMILIES)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    target = tiny.write_model(folder / "target", request.param)
    return target, tiny.write_drafter(folder / "draft")


def test_verify_says_identical(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    target, draft = map(str, pair)
    flags = ("-n", "2", "--max-tokens", "16", "--json")
    assert main(["verify", target, "--draft", draft, *flags]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["draft"]["state"] == "active"
    assert [row["outcome"] for row in document["prompts"]] == ["identical"] * 2
    assert all(row["drafted"] for row in document["prompts"])


@pytest.mark.parametrize("kv", ["bf16", "q8"])
@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe"])
def test_verify_keeps_some_drafts_of_a_hybrid_and_takes_others_back(
    family: str, kv: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Greedily and with two seeds; a block is cut wherever its drafts end."""
    target = tiny.write_terse(tmp_path / "target", family, head_dim=64)
    draft = tiny.write_drafter(tmp_path / "draft")
    pair = ("verify", str(target), "--draft", str(draft), "--kv", kv, "--no-lookup")
    flags = ("-n", "1", "--seeds", "2", "--max-tokens", "24", "--json")
    assert main([*pair, *flags]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kv"] == kv
    assert [row["seed"] for row in document["prompts"]] == [None]
    assert [row["seed"] for row in document["seeded"]] == [1, 2]
    for row in (*document["prompts"], *document["seeded"]):
        assert row["outcome"] == "identical"
        assert 0 < row["accepted"] < row["drafted"]


def test_a_seed_gives_the_same_text_with_drafts_and_without(
    pair: tuple[Path, Path], answer: Callable
) -> None:
    target, draft = pair
    options = LoadOptions(draft=str(draft))
    session = Session.open(ModelDirectory.open(target), options)
    prompt = session.echo_ids("the fox jumps over the dog. " * 3)
    plain = answer(session.target, PlainDrafter(), prompt=prompt)
    drafted = answer(session.target, session.drafter, prompt=prompt)
    assert sum(cycle.drafted for cycle in drafted.cycles) > 0
    verdict = explain(session, prompt, plain.tokens, drafted.tokens)
    assert verdict.outcome == "identical"
