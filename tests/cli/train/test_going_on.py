# SPDX-License-Identifier: Apache-2.0
"""Runs that were stopped, and runs with a limit."""

from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path

import pytest
from cli.train.tiny_run import (
    FAST,
    SMALL,
    wait_for,
    write_questions,
)
from commandline import Call, Start, finish, read_until

from splashpy.cli.train_settings import (
    RECORD,
)
from splashpy.training.course import Pace


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_goes_on_and_reaches_the_same_drafter(
    start: Start,
    call: Call,
    words: tuple[str, ...],
    tmp_path: Path,
    how: signal.Signals,
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    expected = call(*words, str(whole), "--json").json

    process = start(*words, str(parts))
    wait_for(process, (parts / "run" / "step-00000007").exists)
    process.send_signal(how)
    code, _, err = finish(process)
    resume = ("train", words[1], "-o", str(parts), "--resume")
    if how == signal.SIGINT:
        assert code == 130
        assert f"to go on: splashpy {shlex.join(resume)}" in err
    again = call(*resume, "--json")

    assert again.code == 0
    assert again.json["steps"] == 30
    # The reference BLAS repeats every sum in the same order: no tolerance.
    assert again.json["metrics"]["loss"] == expected["metrics"]["loss"]
    assert again.json["metrics"]["val_loss"] == expected["metrics"]["val_loss"]
    weights = Path("drafter", "model.safetensors")
    assert (parts / weights).read_bytes() == (whole / weights).read_bytes()


def test_ctrl_c_while_texts_are_written_says_how_to_go_on(
    start: Start, call: Call, target: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    questions = str(write_questions(tmp_path / "q.jsonl", 60))
    words = ("train", target, "--data", questions, "--answer-tokens", "20")
    sizes = ("--batch", "2", "--steps", "1", *SMALL, *FAST)
    process = start(*words, *sizes, "-o", str(run))
    wait_for(process, (run / "texts" / "examples-00000.jsonl").exists)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)

    assert code == 130
    assert f"to go on: splashpy train {target} -o {run} --resume" in err
    assert call("train", target, "-o", str(run), "--resume").code == 0


def test_a_second_ctrl_c_ends_at_once(
    start: Start, words: tuple[str, ...], tmp_path: Path
) -> None:
    process = start(*words, str(tmp_path / "run"), "--eval-tokens", "400")
    read_until(process, b"training 0 of", of="stderr")
    process.send_signal(signal.SIGINT)
    read_until(process, b"to stop now", of="stderr")  # two at once count as one
    process.send_signal(signal.SIGINT)

    assert finish(process)[0] == 130
    assert not (tmp_path / "run" / "drafter").exists()


def test_a_run_is_not_begun_twice_and_goes_on_only_as_it_was_begun(
    call: Call, words: tuple[str, ...], tmp_path: Path
) -> None:
    run = str(tmp_path / "run")
    assert call(*words, run, "--steps", "2").code == 0

    twice = call(*words, run, "--steps", "2")
    assert twice.code == 2
    assert "holds a run already" in twice.err
    assert "add --resume to go on with it" in twice.err

    other = call("train", "-o", run, "--resume", "--anchors", "5")
    assert other.code == 2
    assert "--anchors was 4, now 5" in other.err

    again = call("train", "-o", run, "--resume", "--eval-prompts", "2", "--json")
    assert again.code == 0
    assert again.json["evaluation"]["prompts"] == 2


def test_minutes_decide_the_steps_and_are_a_limit(
    call: Call,
    target: str,
    texts: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ("train", target, "--data", texts, *SMALL, *FAST, "--minutes", "0.01")
    result = call(*words, "-o", str(tmp_path / "fits"), "--json")
    assert result.code == 0
    planned = result.json["steps_planned"]
    assert planned >= 1
    record = json.loads((tmp_path / "fits" / RECORD).read_text())
    assert record["options"]["steps"] == planned

    monkeypatch.setattr(Pace, "steps_within", lambda *_: 100_000)
    result = call(*words, "-o", str(tmp_path / "cut"), "--json")
    assert result.code == 0
    assert result.json["finished"] is False
    assert 0 < result.json["steps"] < 100_000
    assert "the time was over after step" in result.err
