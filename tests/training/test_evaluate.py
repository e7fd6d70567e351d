# SPDX-License-Identifier: Apache-2.0
"""The whole way: texts, training, the engine's own loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from splashpy.errors import RequestCancelled
from splashpy.models.dflash2_load import load_drafter
from splashpy.models.target import MlxLmTarget
from splashpy.training import evaluate as evaluation
from splashpy.training.blocks import Batch
from splashpy.training.evaluate import Evaluation, evaluate
from splashpy.training.examples import Example
from splashpy.training.export import export
from splashpy.training.init import Student
from splashpy.training.lessons import Lessons
from splashpy.training.plan import TrainingPlan
from splashpy.training.trainer import Trainer

PLAN = TrainingPlan(
    steps=70,
    sequences=4,
    anchors=8,
    learning_rate=4e-3,
    checkpoint_every=1000,
    held_out=0.04,
)


def test_training_helps_held_out_prompts_and_training_and_drafting_agree(
    teachable: MlxLmTarget,
    begin: Callable[[MlxLmTarget], Student],
    write_texts: Callable[..., list[Example]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = write_texts(teachable, 150, answer=24)
    held = [each.prompt_ids for each in texts if each.held_out(PLAN.held_out)]
    student = begin(teachable)

    def measure() -> Evaluation:
        export(student, tmp_path / "drafter")
        network = load_drafter(tmp_path / "drafter", teachable.facts)
        return evaluate(network, teachable, held, max_tokens=24)

    before = measure()
    layers = student.network.config.feature_layers
    lessons = Lessons(teachable, layers, directory=tmp_path / "lessons", budget=1 << 26)
    Trainer(student, teachable, texts, lessons, PLAN, tmp_path / "run").run()
    after = measure()

    assert after.accept_len > before.accept_len + 0.5
    assert before.sound
    assert after.sound

    # Every label one position early, as if row 0 predicted something.
    whole = evaluation.make_batch

    def shifted(*args: Any, **options: Any) -> Batch:
        batch = whole(*args, **options)
        return batch._replace(labels=batch.predecessors)

    monkeypatch.setattr(evaluation, "make_batch", shifted)
    assert not measure().sound


def test_tokens_of_cycles_are_counted_and_the_first_token_is_not(
    teachable: MlxLmTarget, begin: Callable[[MlxLmTarget], Student]
) -> None:
    result = evaluate(begin(teachable).network, teachable, [[1, 2, 3]], max_tokens=9)
    [one] = result.prompts
    assert one.tokens == 8
    assert result.accept_len == 8 / one.cycles
    assert result.estimate == 8 / one.estimated_cycles


def test_an_evaluation_that_is_cancelled_gives_no_figures(
    teachable: MlxLmTarget, begin: Callable[[MlxLmTarget], Student]
) -> None:
    with pytest.raises(RequestCancelled):
        evaluate(
            begin(teachable).network,
            teachable,
            [[1, 2, 3]],
            max_tokens=9,
            cancelled=lambda: True,
        )


def test_prompts_without_a_cycle_are_refused(
    teachable: MlxLmTarget, begin: Callable[[MlxLmTarget], Student]
) -> None:
    with pytest.raises(ValueError, match="none of 1 prompts"):
        evaluate(begin(teachable).network, teachable, [[1, 2, 3]], max_tokens=1)
