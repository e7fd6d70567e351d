# SPDX-License-Identifier: Apache-2.0
"""``splashpy train data`` and where the texts of a run come from."""

from __future__ import annotations

import signal
from pathlib import Path

from cli.train.tiny_run import (
    contents,
    wait_for,
    write_questions,
)
from commandline import Call, Start, finish


def test_the_directory_of_the_texts_is_the_result(
    call: Call, target: str, tmp_path: Path
) -> None:
    questions = str(write_questions(tmp_path / "q.jsonl", 5))
    words = ("train", "data", target, questions, "--answer-tokens", "6", "-o")
    result = call(*words, str(tmp_path / "texts"))

    assert (result.code, result.out) == (0, f"{tmp_path / 'texts'}\n")
    assert "5 different texts with 30 answer tokens" in result.err
    document = call(*words, str(tmp_path / "texts"), "--json").json
    assert document == {
        "schema": "splashpy.train_data/1",
        "model": target,
        "directory": str(tmp_path / "texts"),
        "conversations": 5,
        "texts": 5,
        "answer_tokens": 30,
    }


def test_without_questions_the_model_invents_them(
    call: Call, target: str, tmp_path: Path
) -> None:
    folder = tmp_path / "texts"
    words = ("train", "data", target, "-o", str(folder), "--batch", "2")
    sizes = ("--question-tokens", "8", "--answer-tokens", "4")

    assert call(*words, *sizes, "--conversations", "3").code == 0
    assert len(list(folder.glob("examples-*.jsonl"))) == 2
    assert call(*words, *sizes, "--conversations", "6").code == 0
    # 2 and 1 conversations, and 2 and 1 more.
    assert len(list(folder.glob("examples-*.jsonl"))) == 4
    other = call(*words, *sizes, "--conversations", "6", "--seed", "1")
    assert other.code == 2
    assert "seed was 42, now 1" in other.err


def test_an_interrupted_corpus_goes_on_and_becomes_the_same(
    start: Start, call: Call, target: str, tmp_path: Path
) -> None:
    questions = str(write_questions(tmp_path / "q.jsonl", 60))
    words = ("train", "data", target, questions, "--answer-tokens", "20")
    words = (*words, "--batch", "2", "-o")
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    process = start(*words, str(parts))
    wait_for(process, (parts / "examples-00001.jsonl").exists)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)

    kept = len(list(parts.glob("examples-*.jsonl")))
    assert code == 130
    assert 2 <= kept < 30
    assert f"{2 * kept} of 60 conversations are kept" in err
    assert "the same command goes on from here" in err
    assert call(*words, str(parts)).code == 0
    assert call(*words, str(whole)).code == 0
    assert contents(parts) == contents(whole)


def test_several_corpora_are_put_together(
    call: Call, words: tuple[str, ...], target: str, tmp_path: Path
) -> None:
    """And the run that began with them goes on with them."""
    questions, more = write_questions(tmp_path / "questions", 3), str(tmp_path / "more")
    assert call("train", "data", target, str(questions), "-o", more).code == 0
    run, eval_off = str(tmp_path / "run"), ("--eval-prompts", "0")

    alone = call(*words, str(tmp_path / "alone"), "--steps", "1", *eval_off, "--json")
    both = call(*words, run, "--data", more, "--steps", "1", *eval_off, "--json")
    assert both.code == alone.code == 0
    together = [each.json["texts"] + each.json["held_out"] for each in (alone, both)]
    assert together[1] - together[0] == 3
    assert f"--data {more}" in (Path(run) / "drafter" / "README.md").read_text()
    assert call("train", "-o", run, "--resume", *eval_off).code == 0
