# SPDX-License-Identifier: Apache-2.0
"""A target that can be taught, a drafter, and sixty answers to learn from."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
from cli.train.tiny_run import FAST, SMALL, STEPS, write_questions

from splashpy.package.model_directory import ModelDirectory
from splashpy.training.teacher import Teacher
from splashpy.training.texts import Assignment, read_questions
from splashpy.training.writing import WritingPlan


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny.write_teachable(tmp_path_factory.mktemp("target")))


@pytest.fixture(scope="session")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_drafter(tmp_path_factory.mktemp("drafter"))


@pytest.fixture(scope="session")
def texts(target: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A corpus of sixty answers."""
    folder = tmp_path_factory.mktemp("corpus")
    questions = read_questions(write_questions(folder / "questions.jsonl", 60))
    teacher = Teacher.open(ModelDirectory.open(Path(target)), lambda _: None)
    assignment = Assignment(folder / "texts", WritingPlan(answer_tokens=20), questions)
    assert assignment.write(teacher, lambda: False, lambda *_: None)
    return str(folder / "texts")


@pytest.fixture
def words(target: str, texts: str) -> tuple[str, ...]:
    return ("train", target, "--data", texts, *SMALL, *FAST, *STEPS, "-o")
