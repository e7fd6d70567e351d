# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from splashpy.errors import CapacityError, InputFileError, UsageError
from splashpy.models.target import MlxLmTarget
from splashpy.training.examples import Example
from splashpy.training.init import Student
from splashpy.training.lessons import Lessons
from splashpy.training.loss import Objective
from splashpy.training.plan import TrainingPlan
from splashpy.training.trainer import Outcome, Trainer

PLAN = TrainingPlan(
    steps=7,
    sequences=2,
    anchors=3,
    accumulation=2,
    log_every=2,
    checkpoint_every=2,
    held_out=0.3,
    held_out_batches=1,
)

Begin = Callable[[MlxLmTarget], Student]
Texts = Callable[..., list[Example]]


@pytest.fixture
def trainer_in(
    teachable: MlxLmTarget, begin: Begin, write_texts: Texts
) -> Callable[..., tuple[Trainer, Student]]:
    texts = write_texts(teachable, 12)

    def make(
        directory: Path, plan: TrainingPlan = PLAN, **options: int
    ) -> tuple[Trainer, Student]:
        student = begin(teachable)
        lessons = Lessons(teachable, student.network.config.feature_layers)
        trainer = Trainer(
            student, teachable, texts, lessons, plan, directory, **options
        )
        return trainer, student

    return make


def stop_after(steps: int) -> Callable[[], bool]:
    def flags() -> Iterator[bool]:
        yield from [False] * steps
        while True:
            yield True

    source = flags()
    return lambda: next(source)


def lines(directory: Path) -> list[dict]:
    text = (directory / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def without_times(metrics: list[dict]) -> list[dict]:
    return [
        {name: value for name, value in line.items() if name != "seconds_per_step"}
        for line in metrics
    ]


def assert_same_weights(one: Student, other: Student) -> None:
    # The same operations in the same order on the same machine: no tolerance.
    for name, array in one.weights.items():
        assert mx.array_equal(array, other.weights[name]), name


@pytest.mark.parametrize("stop", [1, 2, 5])
def test_an_interrupted_run_reaches_what_an_uninterrupted_one_does(
    tmp_path: Path, trainer_in: Callable[..., tuple[Trainer, Student]], stop: int
) -> None:
    whole, expected = trainer_in(tmp_path / "whole")
    outcome = whole.run()
    assert (outcome.steps, outcome.finished) == (7, True)

    first, _ = trainer_in(tmp_path / "parts")
    assert first.run(stop_after(stop)) == Outcome(
        stop, finished=False, metrics=outcome_metrics(tmp_path / "parts")
    )
    second, student = trainer_in(tmp_path / "parts")
    assert second.run().finished
    assert_same_weights(student, expected)


def outcome_metrics(directory: Path) -> dict:
    path = directory / "metrics.jsonl"
    logged = lines(directory) if path.exists() else []
    return next((each for each in reversed(logged) if "loss" in each), {})


def test_a_killed_run_goes_on_from_its_last_complete_checkpoint(
    tmp_path: Path, trainer_in: Callable[..., tuple[Trainer, Student]]
) -> None:
    whole, expected = trainer_in(tmp_path / "whole")
    whole.run()

    killed, _ = trainer_in(tmp_path / "parts")
    killed.run(stop_after(5))
    # As a kill would leave it: step 5 half written, and a line of it, too.
    newest = max((tmp_path / "parts").glob("step-*"))
    assert newest.name == "step-00000005"
    newest.rename(tmp_path / "parts" / ".unfinished")
    with (tmp_path / "parts" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')

    again, student = trainer_in(tmp_path / "parts")
    again.run()
    assert_same_weights(student, expected)
    wanted = [
        each
        for each in without_times(lines(tmp_path / "whole"))
        if "loss" in each or each["step"] != 5
    ]
    assert without_times(lines(tmp_path / "parts")) == wanted


def test_kill_9_costs_the_steps_since_the_last_checkpoint_and_nothing_else(
    tmp_path: Path,
) -> None:
    here = Path(__file__).parent

    def run(name: str, steps: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, here / "killed_run.py", tmp_path / name, str(steps)],
            env={**os.environ, "PYTHONPATH": str(here.parent)},
            capture_output=True,
            text=True,
            check=False,
        )

    assert run("parts", 3).returncode == -signal.SIGKILL
    assert [each.name for each in (tmp_path / "parts").glob("step-*")] == [
        "step-00000002"
    ]
    again, whole = run("parts", 99), run("whole", 99)
    assert again.returncode == 0, again.stderr
    assert again.stdout == whole.stdout != ""


def test_the_last_three_checkpoints_are_kept_and_nothing_unfinished(
    tmp_path: Path, trainer_in: Callable[..., tuple[Trainer, Student]]
) -> None:
    trainer_in(tmp_path)[0].run()
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "metrics.jsonl",
        "run.json",
        "step-00000004",
        "step-00000006",
        "step-00000007",
    ]


def test_metrics_name_what_is_measured_and_what_is_held_out(
    tmp_path: Path, trainer_in: Callable[..., tuple[Trainer, Student]]
) -> None:
    seen: list[int] = []
    trainer_in(tmp_path)[0].run(progress=lambda step, _: seen.append(step))
    assert seen == [2, 4, 6, 7]
    names = {name for line in lines(tmp_path) for name in line}
    quality = {
        "loss",
        "base_loss",
        "selector_loss",
        "accuracy",
        "accept_len",
        "base_accuracy",
        "base_accept_len",
        "candidate_recall",
    }
    assert names == {"step", "learning_rate", "seconds_per_step"} | quality | {
        f"val_{name}" for name in quality
    }


def test_a_directory_of_another_run_is_refused(
    tmp_path: Path, trainer_in: Callable[..., tuple[Trainer, Student]]
) -> None:
    trainer_in(tmp_path)
    other = dataclasses.replace(PLAN, seed=1)
    with pytest.raises(UsageError, match="another run") as raised:
        trainer_in(tmp_path, other)
    assert raised.value.why == "these differ: plan"


def test_a_damaged_checkpoint_is_named(
    tmp_path: Path, trainer_in: Callable[..., tuple[Trainer, Student]]
) -> None:
    trainer_in(tmp_path)[0].run(stop_after(1))
    file = tmp_path / "step-00000001" / "network.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputFileError, match="step-00000001 is damaged"):
        trainer_in(tmp_path)


def test_only_the_selector_changes_when_that_is_asked(
    tmp_path: Path, trainer_in: Callable[..., tuple[Trainer, Student]]
) -> None:
    plan = TrainingPlan(steps=3, sequences=4, anchors=8, only="selector")
    trainer, student = trainer_in(tmp_path, plan)
    trainer.run()
    changed = {
        name
        for name, array in student.weights.items()
        if not mx.array_equal(array, student.began[name])
    }
    assert changed
    assert all(name.startswith("candidate_selector.") for name in changed)


def test_a_plan_that_does_not_fit_is_refused_before_the_first_step(
    tmp_path: Path, trainer_in: Callable[..., tuple[Trainer, Student]]
) -> None:
    needed = trainer_in(tmp_path / "fits")[0].memory
    trainer_in(tmp_path / "just", memory_limit=needed)
    with pytest.raises(CapacityError, match="training needs about"):
        trainer_in(tmp_path / "not", memory_limit=needed - 1)


def test_the_estimate_of_memory_holds(
    tmp_path: Path, trainer_in: Callable[..., tuple[Trainer, Student]]
) -> None:
    plan = TrainingPlan(steps=2, sequences=8, anchors=32, checkpoint_every=9)
    trainer, _ = trainer_in(tmp_path, plan)
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    trainer.run()
    assert mx.get_peak_memory() - before < trainer.memory


def test_nothing_to_learn_from_is_an_error(
    teachable: MlxLmTarget, begin: Begin, tmp_path: Path
) -> None:
    student = begin(teachable)
    lessons = Lessons(teachable, student.network.config.feature_layers)
    short = [Example((1, 2, 3), 2, "f" * 32)]
    with pytest.raises(UsageError, match="no text to learn from"):
        Trainer(student, teachable, short, lessons, PLAN, tmp_path)


@pytest.mark.parametrize(
    ("layers", "likely", "reason"),
    [((0, 2), 2, "student reads"), ((0, 2, 3), 0, "distillation needs")],
)
def test_lessons_that_lack_something_are_refused(
    teachable: MlxLmTarget,
    begin: Begin,
    write_texts: Texts,
    tmp_path: Path,
    layers: tuple[int, ...],
    likely: int,
    reason: str,
) -> None:
    plan = dataclasses.replace(PLAN, objective=Objective(distillation=0.5))
    lessons = Lessons(teachable, layers, likely=likely)
    texts = write_texts(teachable, 3)
    with pytest.raises(ValueError, match=reason):
        Trainer(begin(teachable), teachable, texts, lessons, plan, tmp_path)


def test_kept_lessons_change_nothing(
    teachable: MlxLmTarget, begin: Begin, write_texts: Texts, tmp_path: Path
) -> None:
    texts = write_texts(teachable, 6)
    plan = dataclasses.replace(PLAN, objective=Objective(distillation=0.5))

    def train(name: str, lessons: Lessons) -> Student:
        student = begin(teachable)
        Trainer(student, teachable, texts, lessons, plan, tmp_path / name).run()
        return student

    kept = {"likely": 2, "directory": tmp_path / "lessons", "budget": 40_000}
    first = train("computed", Lessons(teachable, (0, 2, 3), likely=2))
    second = train("kept", Lessons(teachable, (0, 2, 3), **kept))
    files = list((tmp_path / "lessons").iterdir())
    assert 1 <= len(files) < 6  # the budget is smaller than all lessons
    assert sum(each.stat().st_size for each in files) <= 40_000
    third = train("again", Lessons(teachable, (0, 2, 3), **kept))
    assert_same_weights(first, second)
    assert_same_weights(first, third)


def test_the_rate_rises_in_a_line_and_falls_to_its_last_share() -> None:
    plan = TrainingPlan(steps=100, learning_rate=1.0, final_rate=0.1, warmup=0.04)
    rates = [plan.rate(step) for step in range(100)]
    np.testing.assert_allclose(rates[:4], [0.25, 0.5, 0.75, 1.0])
    assert all(later < now for now, later in pairwise(rates[4:]))
    np.testing.assert_allclose(rates[52], 0.55)
    assert 0.1 <= rates[-1] < 0.11


@pytest.mark.parametrize("keep", [0, 7, 0.5])
def test_a_lesson_that_was_cut_off_is_computed_again(
    teachable: MlxLmTarget, write_texts: Texts, tmp_path: Path, keep: float
) -> None:
    (text,) = write_texts(teachable, 1)
    lessons = Lessons(teachable, (0, 2), directory=tmp_path, budget=1 << 30)
    whole = lessons.of(text).features
    (path,) = tmp_path.iterdir()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(int(keep if keep >= 1 else keep * size))

    assert mx.array_equal(lessons.of(text).features, whole)
    assert path.stat().st_size == size
