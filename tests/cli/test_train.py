# SPDX-License-Identifier: Apache-2.0
"""``splashpy train`` and ``train data`` on a pair that learns in seconds."""

from __future__ import annotations

import json
import shlex
import signal
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from subprocess import Popen
from typing import Any

import mlx.core as mx
import pytest
import tiny
from commandline import LIMIT, Call, Start, finish, read_until

from splashpy.cli import authoring
from splashpy.cli.options import OPTIONS
from splashpy.cli.train import EVAL_PROMPTS, EVAL_TOKENS
from splashpy.cli.train_settings import (
    _GEOMETRY,
    _OBJECTIVE,
    _PLAN,
    _ROWS,
    _WRITING,
    RECORD,
    SEED,
)
from splashpy.package.model_directory import ModelDirectory
from splashpy.training import evaluate as evaluation
from splashpy.training.blocks import Batch
from splashpy.training.course import EPOCHS, Pace
from splashpy.training.init import Geometry
from splashpy.training.loss import Objective
from splashpy.training.plan import TrainingPlan
from splashpy.training.teacher import Teacher
from splashpy.training.texts import Assignment, read_questions
from splashpy.training.writing import WritingPlan

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SMALL = (
    *("--layers", "2", "--features", "0,2,3", "--window", "64"),
    *("--conv-group", "8", "--rank", "8", "--candidates", "6"),
)
"""A drafter that suits the tiny target."""
SHORT = ("--held-out", "0.3", "--eval-prompts", "6", "--eval-tokens", "16")
FAST = ("--sequences", "2", "--anchors", "4", "--log-every", "1", *SHORT)


def write_questions(path: Path, count: int) -> Path:
    """Prompts of three letters, no two alike."""
    words = (
        LETTERS[i % 26] + LETTERS[i // 26] + LETTERS[7 * i % 26] for i in range(count)
    )
    path.write_text("".join(json.dumps({"prompt": word}) + "\n" for word in words))
    return path


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny.write_teachable(tmp_path_factory.mktemp("target")))


@pytest.fixture(scope="module")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_drafter(tmp_path_factory.mktemp("drafter"))


@pytest.fixture(scope="module")
def texts(target: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A corpus of sixty answers."""
    folder = tmp_path_factory.mktemp("corpus")
    questions = read_questions(write_questions(folder / "questions.jsonl", 60))
    teacher = Teacher.open(ModelDirectory.open(Path(target)), lambda _: None)
    assignment = Assignment(folder / "texts", WritingPlan(answer_tokens=20), questions)
    assert assignment.write(teacher, lambda: False, lambda *_: None)
    return str(folder / "texts")


# --- texts ------------------------------------------------------------------------


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
    assert len(list(folder.glob("examples-*.jsonl"))) == 3
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


def wait_for(process: Popen[bytes], condition: Callable[[], bool]) -> None:
    """Until something is true of a process's files."""
    until = time.monotonic() + LIMIT
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.005)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- training ---------------------------------------------------------------------


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


# --- stopping and going on --------------------------------------------------------

STEPS = ("--steps", "30", "--checkpoint-every", "7")


@pytest.fixture
def words(target: str, texts: str) -> tuple[str, ...]:
    return ("train", target, "--data", texts, *SMALL, *FAST, *STEPS, "-o")


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


# --- what cannot be done ----------------------------------------------------------


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


def test_a_file_of_options_gives_way_to_flags_and_is_checked_as_they_are(
    call: Call, target: str, texts: str, tmp_path: Path
) -> None:
    file = tmp_path / "train.toml"
    file.write_text(
        f"data = {json.dumps(texts)}\nsteps = 3\nlayers = 2\nconv_group = 8\n"
        "features = [0, 2, 3]\nlearning-rate = 1e-3\nheld-out = 0.3\n"
    )
    run = tmp_path / "run"
    words = ("train", target, "--config", str(file), "--eval-prompts", "0", "-o")
    result = call(*words, str(run), "--steps", "1", "--json")

    assert result.code == 0
    assert result.json["evaluation"] is None
    assert json.loads((run / RECORD).read_text())["options"] == {
        "data": [texts],
        "steps": 1,
        "layers": 2,
        "conv-group": 8,
        "features": [0, 2, 3],
        "learning-rate": 0.001,
        "held-out": 0.3,
        "eval-prompts": 0,
    }
    for text, needle in (
        ("stepz = 3\n", "there is no option stepz"),
        ("steps = -3\n", "steps got '-3'"),
        ("resume = true\n", "there is no option resume"),
        ("steps\n", "is not TOML"),
    ):
        file.write_text(text)
        result = call(*words, str(tmp_path / "other"))
        assert result.code == 2
        assert needle in result.err


# --- pages ------------------------------------------------------------------------


def test_the_page_tells_the_defaults_that_apply() -> None:
    tables = [
        (_WRITING, WritingPlan),
        (_GEOMETRY, Geometry),
        (_OBJECTIVE, Objective),
        (_PLAN, TrainingPlan),
    ]
    words = ("spread", "as the target", "all")
    for table, kind in tables:
        defaults = {each.name: each.default for each in fields(kind)}
        for name, field in table.items():
            if name != "mask-token-id":
                value, said = defaults[field], _ROWS[name].default
                number = isinstance(value, int | float)
                assert said in ([f"{value:g}"] if number else words), name
    plan = {each.name: each.default for each in fields(TrainingPlan)}
    assert plan["seed"] == SEED == int(OPTIONS["training_seed"].default)
    assert OPTIONS["eval_prompts"].default == str(EVAL_PROMPTS)
    assert OPTIONS["eval_tokens"].default == str(EVAL_TOKENS)
    assert OPTIONS["steps"].default == f"each text {EPOCHS} times"
