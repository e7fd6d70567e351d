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
