# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from splashpy.errors import CapacityError, UsageError
from splashpy.host.model import Speech
from splashpy.models.target import MlxLmTarget
from splashpy.training.course import Course, Pace, continue_student
from splashpy.training.examples import Corpus, Example, digest
from splashpy.training.init import Student
from splashpy.training.plan import TrainingPlan
from splashpy.training.teacher import Teacher
from splashpy.training.texts import read_texts

PLAN = TrainingPlan(steps=4, sequences=2, anchors=3, held_out=0.3, held_out_batches=1)


@pytest.fixture
def course_in(
    teachable: MlxLmTarget,
    speech: Speech,
    begin: Callable[[MlxLmTarget], Student],
    write_texts: Callable[..., list[Example]],
) -> Callable[..., Course]:
    examples = write_texts(teachable, 12)

    def make(directory: Path, **changes: int) -> Course:
        return Course(
            teacher=Teacher(teachable, speech),
            student=begin(teachable),
            examples=examples,
            plan=PLAN,
            directory=directory,
            **changes,
        )

    return make


def test_a_measured_step_leaves_weights_and_directory_as_they_were(
    course_in: Callable[..., Course], tmp_path: Path
) -> None:
    course = course_in(tmp_path)
    pace = course.pace(1 << 40)

    assert pace.step_seconds > 0
    assert pace.lesson_seconds > 0
    assert pace.texts_per_step == 2
    assert not course.student.changed
    assert not list(tmp_path.iterdir())
    with pytest.raises(CapacityError):
        course.pace(pace.memory - 1)


def test_lessons_are_kept_when_the_disk_has_room_for_all_and_removed_at_the_end(
    course_in: Callable[..., Course], tmp_path: Path
) -> None:
    assert course_in(tmp_path, lessons_bytes=1).pace(1 << 40).kept_texts == 0
    course = course_in(tmp_path, lessons_bytes=1 << 30)
    assert course.pace(1 << 40).kept_texts == len(course.taught)

    outcome = course.train(1 << 40, lambda: False, lambda *_: None)
    assert (tmp_path / "lessons").is_dir()
    assert course.steps_done == outcome.steps == 4
    course.finish()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["drafter", "run"]
    metrics = course.last_metrics()
    assert metrics["step"] == 4
    assert {"loss", "val_loss"} <= metrics.keys()


def test_every_text_is_seen_six_times_unless_steps_are_given(
    course_in: Callable[..., Course], tmp_path: Path
) -> None:
    course = course_in(tmp_path)
    assert len(course.taught) + len(course.held_out) == 12
    assert course.default_steps == 3 * len(course.taught)
    plan = dataclasses.replace(PLAN, accumulation=3)
    assert dataclasses.replace(course, plan=plan).default_steps == len(course.taught)


@given(
    step=st.floats(1e-3, 10),
    lesson=st.floats(0, 10),
    per_step=st.integers(1, 8),
    kept=st.integers(0, 500),
    seconds=st.floats(0, 1e4),
)
def test_steps_that_fit_take_no_longer_and_one_more_would(
    step: float, lesson: float, per_step: int, kept: int, seconds: float
) -> None:
    pace = Pace(step, lesson, per_step, kept, memory=0)
    steps = pace.steps_within(seconds)

    assert steps == 1 or pace.seconds(steps) <= seconds
    assert pace.seconds(steps + 1) > seconds


def test_kept_lessons_cost_once_and_others_every_time() -> None:
    assert Pace(1.0, 0.5, 2, kept_texts=6, memory=0).seconds(10) == 13.0
    assert Pace(1.0, 0.5, 2, kept_texts=0, memory=0).seconds(10) == 20.0


def test_a_first_version_drafter_has_no_selector_to_train(
    teachable: MlxLmTarget, speech: Speech, tmp_path: Path
) -> None:
    drafter = tiny.write_drafter(tmp_path, version=1)
    plan = dataclasses.replace(PLAN, only="selector")
    with pytest.raises(UsageError, match="no selector to train"):
        continue_student(Teacher(teachable, speech), drafter, plan)


def test_texts_of_another_model_are_refused(
    target: MlxLmTarget, speech: Speech, tmp_path: Path
) -> None:
    corpus = Corpus(tmp_path)
    corpus.claim({})
    corpus.write_shard(0, [Example((1, 2, 70_000), 1, digest(""))])
    with pytest.raises(UsageError, match="another model") as raised:
        read_texts(Teacher(target, speech), tmp_path)
    assert raised.value.why == "they have token 70000, this model's largest is 259"


def test_the_room_is_what_the_weights_leave(
    target: MlxLmTarget, speech: Speech
) -> None:
    facts = dataclasses.replace(target.facts, weight_bytes=600)
    target.facts = facts
    teacher = Teacher(target, speech)
    assert teacher.room(1000) == 400
    assert teacher.room() > 1 << 20
    with pytest.raises(CapacityError, match="the target alone takes 600 B"):
        teacher.room(600)
