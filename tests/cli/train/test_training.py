# SPDX-License-Identifier: Apache-2.0
"""``splashpy train``: what comes out, and what it is good for."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
import tiny
from cli.train.tiny_run import (
    FAST,
    SHORT,
    SMALL,
    contents,
    write_questions,
)
from commandline import Call

from splashpy.cli.train_settings import (
    RECORD,
)


def test_training_raises_what_the_engine_accepts_on_held_out_prompts(
    call: Call, target: str, texts: str, tmp_path: Path
) -> None:
    words = ("train", target, "--data", texts, *SMALL, *SHORT, "--json", "-o")
    before = call(*words, str(tmp_path / "before"), "--steps", "0")
    teach = ("--steps", "50", "--learning-rate", "4e-3", "--anchors", "8")
    after = call(*words, str(tmp_path / "after"), *teach)

    assert (before.code, after.code) == (0, 0)
    first, second = (each.json["evaluation"] for each in (before, after))
    assert second["accept_len"] > first["accept_len"] + 0.5
    assert second["prompts"] == first["prompts"] > 3
    assert first["sound"]
    assert second["sound"]
    document = after.json
    assert document["schema"] == "splashpy.train/1"
    assert (document["steps"], document["finished"]) == (50, True)
    assert document["error"] is None
    assert {"loss", "candidate_recall", "val_accept_len"} <= document["metrics"].keys()


def test_the_drafter_is_used_as_the_last_line_says_and_its_card_tells_how_it_came(
    call: Call, target: str, texts: str, tmp_path: Path
) -> None:
    run = tmp_path / "a run"
    words = ("train", target, "--data", texts, *SMALL, *FAST, "--steps", "2")
    result = call(*words, "-o", str(run), "--license", "Apache-2.0")

    assert result.code == 0
    last = result.out.splitlines()[-1].removeprefix("next     ")
    assert call(*shlex.split(last)[1:], "--max-tokens", "4", "--temp", "0").code == 0
    card = (run / "drafter" / "README.md").read_text()
    assert "license: Apache-2.0" in card
    (command,) = [line for line in card.splitlines() if line.startswith("splashpy ")]
    again = tmp_path / "again"
    typed = [str(again) if word == str(run) else word for word in shlex.split(command)]
    assert call(*typed[1:]).code == 0
    weights = Path("drafter", "model.safetensors")
    assert (again / weights).read_bytes() == (run / weights).read_bytes()


def test_without_data_the_model_writes_the_texts_of_the_run(
    call: Call, target: str, tmp_path: Path
) -> None:
    questions = str(write_questions(tmp_path / "q.jsonl", 20))
    words = ("train", target, "--data", questions, "--answer-tokens", "8")
    run = tmp_path / "run"
    result = call(*words, *SMALL, *FAST, "--steps", "1", "-o", str(run), "--json")

    assert result.code == 0
    assert result.json["texts"] + result.json["held_out"] == 20
    assert sorted(path.name for path in run.iterdir()) == [
        "drafter",
        "run",
        "texts",
        RECORD,
    ]


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe"])
def test_a_hybrid_writes_texts_and_gets_a_drafter_that_changes_none(
    call: Call, family: str, tmp_path: Path
) -> None:
    target = str(tiny.write_teachable(tmp_path / "target", model_type=family))
    questions = str(write_questions(tmp_path / "q.jsonl", 20))
    words = ("train", target, "--data", questions, "--answer-tokens", "8")
    run = tmp_path / "run"
    result = call(*words, *SMALL, *FAST, "--steps", "3", "-o", str(run), "--json")

    assert result.code == 0
    document = result.json
    assert (document["steps"], document["finished"]) == (3, True)
    assert document["evaluation"]["sound"]
    draft = ("--draft", str(run / "drafter"), "--no-lookup")
    flags = ("-n", "1", "--seeds", "1", "--max-tokens", "16")
    assert call("verify", target, *draft, *flags).code == 0


@pytest.mark.parametrize("data", [False, True])
def test_no_steps_reproduce_the_drafter_byte_for_byte(
    call: Call, target: str, texts: str, drafter: Path, tmp_path: Path, *, data: bool
) -> None:
    words = ("train", target, "--init", str(drafter), "--steps", "0", *SHORT)
    source = ("--data", texts) if data else ()
    result = call(*words, *source, "-o", str(tmp_path / "run"))

    assert result.code == 0
    made = contents(tmp_path / "run" / "drafter")
    assert made.pop("README.md")
    assert made == contents(drafter)


def test_only_the_selector_of_a_drafter_can_be_trained(
    call: Call, target: str, texts: str, drafter: Path, tmp_path: Path
) -> None:
    words = ("train", target, "--init", str(drafter), "--only", "selector")
    words = (*words, "--data", texts, *FAST, "--steps", "2", "-o")
    assert call(*words, str(tmp_path / "run")).code == 0
    before: Any = mx.load(str(drafter / "model.safetensors"))
    after: Any = mx.load(str(tmp_path / "run" / "drafter" / "model.safetensors"))
    changed = {n for n in before if not mx.array_equal(before[n], after[n])}
    assert changed
    assert all(name.startswith("candidate_selector.") for name in changed)


def test_frequent_tokens_and_bits_are_kept_in_the_drafter(
    call: Call, target: str, texts: str, tmp_path: Path
) -> None:
    words = ("train", target, "--data", texts, *SMALL, *FAST, "--steps", "1")
    more = ("--frequent-tokens", "40", "--bits", "8", "--gamma", "0")
    result = call(*words, *more, "-o", str(tmp_path / "run"), "--json")

    assert result.code == 0
    config = json.loads((tmp_path / "run" / "drafter" / "config.json").read_text())
    assert config["quantization"] == {"group_size": 64, "bits": 8}
    assert (tmp_path / "run" / "drafter" / "frequent_tokens.json").exists()
