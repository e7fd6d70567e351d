# SPDX-License-Identifier: Apache-2.0
"""What cannot be trained, each told as one error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.train.tiny_run import (
    write_questions,
)
from commandline import Call

from splashpy.cli import authoring
from splashpy.training import evaluate as evaluation
from splashpy.training.blocks import Batch


def test_an_engine_that_accepts_other_drafts_ends_with_5(
    call: Call, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teach = ("--steps", "30", "--learning-rate", "4e-3", "--sequences", "4")
    run = str(tmp_path / "run")
    assert call(*words, run, *teach).code == 0
    whole = evaluation.make_batch

    def shifted(*args: Any, **options: Any) -> Batch:
        batch = whole(*args, **options)
        return batch._replace(labels=batch.predecessors)

    monkeypatch.setattr(evaluation, "make_batch", shifted)
    result = call("train", "-o", run, "--resume")
    assert result.code == 5
    assert "[E-DRAFT-CHECK]" in result.err
    assert "--eval-prompts" in result.err
    assert "in the engine" in result.out

    document = call("train", "-o", run, "--resume", "--json")
    assert document.code == 5
    assert document.json["evaluation"]["sound"] is False
    assert document.json["error"]["code"] == "E-DRAFT-CHECK"


def test_long_work_is_asked_about(
    call: Call, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authoring, "ASK_ABOVE_SECONDS", 0.0)
    result = call(*words, str(tmp_path / "run"), "--steps", "1")

    assert result.code == 2
    assert "Train for about" in result.err
    assert "--yes" in result.err
    assert call(*words, str(tmp_path / "run"), "--steps", "1", "--yes").code == 0


def test_a_loss_that_is_no_number_ends_the_run(
    call: Call, words: tuple[str, ...], tmp_path: Path
) -> None:
    result = call(*words, str(tmp_path / "run"), "--learning-rate", "1e30")

    assert result.code == 1
    assert "[E-NAN]" in result.err
    assert "a smaller --learning-rate" in result.err


@pytest.mark.parametrize(
    ("flags", "code", "needle"),
    [
        (("--only", "selector"), 2, "--only selector goes with --init"),
        (("--init", "DRAFTER", "--layers", "2"), 2, "--layers cannot be chosen here"),
        (("--init", "/no/such"), 2, "--init got '/no/such'"),
        (("--init", "EMPTY"), 3, "no drafter, config.json is missing"),
        (("--conversations", "5"), 2, "--conversations cannot be chosen here"),
        (("--data", "/no/such"), 3, "--data /no/such: no such file"),
        (("--data", "EMPTY"), 2, "holds no texts"),
        (("--data", "FULL", "--data", "FILE"), 2, "there is other --data"),
        (("--block-size", "1"), 2, "a whole number from 2 to 64"),
        (("--features", "1;2"), 2, "whole numbers with commas"),
        (("--features", "0,9"), 3, "numbers below 4"),
        (("--sources", "1"), 2, "1 source layers for 3 drafter layers"),
        (("--sources", "1,2,4"), 2, "the target has 0 to 3"),
        (("--mask-token-id", "300"), 2, "the largest token is 259"),
        (("--conv-group", "7"), 3, "a divisor of hidden_size"),
        (("--window", "4"), 3, "at least the block size"),
        (("--max-memory", "1M"), 4, "training needs about"),
        (("--max-memory", "1k"), 4, "the target alone takes"),
        (("--max-memory", "lots"), 2, "a size such as 28G"),
        (("--held-out", "0"), 2, "no conversation is held out"),
        (("--held-out", "0.9", "--data", "FEW"), 2, "no text to learn from"),
        (("--frequent-tokens", "9"), 2, "9 frequent tokens are too few to draft"),
        (("--minutes", "0"), 2, "a number above 0"),
        (("--steps", "-1"), 2, "a whole number of at least 0"),
        (("--learning-rate", "0"), 2, "a number above 0"),
        (("--resume",), 2, "there is no run in"),
        (("--config", "/no/such.toml"), 3, "--config /no/such.toml cannot be read"),
        (("-o", "FILE"), 2, "is a file"),
        (("-o", "FULL"), 2, "is not empty, and holds no run"),
    ],
)
def test_what_cannot_be_done_is_said_and_leaves_nothing_behind(
    call: Call,
    target: str,
    texts: str,
    drafter: Path,
    tmp_path: Path,
    flags: tuple[str, ...],
    code: int,
    needle: str,
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "corpus.json").write_text("{}")
    places = {
        "DRAFTER": drafter,
        "EMPTY": tmp_path / "empty",
        "FEW": tmp_path / "few",
        "FILE": write_questions(tmp_path / "file", 1),
        "FULL": Path(texts),
    }
    run = tmp_path / "run"
    given = [str(places.get(word, word)) for word in flags]
    data = () if "--data" in flags else ("--data", texts)
    result = call("train", target, *data, "-o", str(run), *given)

    assert result.code == code, result.err
    assert needle in result.err
    assert result.err.count("error:") == 1
    assert not run.exists() or not list(run.iterdir())


@pytest.mark.parametrize(
    ("words", "code", "needle"),
    [
        (("train", "TARGET"), 2, "-o DIR is missing"),
        (("train", "data", "TARGET"), 2, "-o DIR is missing"),
        (
            ("train", "data", "TARGET", "/no/such", "-o", "x"),
            3,
            "/no/such cannot be read",
        ),
        (("train", "data", "TARGET", "EMPTY", "-o", "x"), 3, "holds no conversation"),
        (("train", "data", "TARGET", "BAD", "-o", "x"), 3, "line 2 is no"),
        (
            ("train", "data", "TARGET", "BAD", "-o", "x", "--conversations", "9"),
            2,
            "--conversations cannot be chosen here",
        ),
    ],
)
def test_bad_words_are_one_clear_error(
    call: Call,
    target: str,
    tmp_path: Path,
    words: tuple[str, ...],
    code: int,
    needle: str,
) -> None:
    empty, bad = tmp_path / "empty.jsonl", tmp_path / "bad.jsonl"
    empty.write_text("\n")
    bad.write_text('{"prompt": "a"}\n{"text": "b"}\n')
    places = {"TARGET": target, "EMPTY": str(empty), "BAD": str(bad)}
    places["x"] = str(tmp_path / "texts")
    result = call(*(places.get(word, word) for word in words))

    assert result.code == code
    assert needle in result.err
    assert not (tmp_path / "texts").exists()
