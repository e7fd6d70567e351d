# SPDX-License-Identifier: Apache-2.0
"""A whole training: texts, steps, evaluation, and the finished drafter.

Everything of one run lies in one directory:

``texts/``
    the corpus, when the run wrote its own.
``lessons/``
    features of the texts; removed when the run has finished.
``run/``
    checkpoints and ``metrics.jsonl``.
``drafter/``
    the result in the published layout, with its model card.

Each stage goes on where an earlier one stopped, so a run may be interrupted anywhere.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from mlx.utils import tree_flatten

from splashpy.errors import UsageError
from splashpy.models.dflash2_load import load_drafter
from splashpy.package.disk_space import MARGIN_BYTES, check_free, free_bytes
from splashpy.training.batches import candidates
from splashpy.training.card import ModelCard, write_card
from splashpy.training.checkpoint import KEPT, Checkpoints
from splashpy.training.evaluate import Evaluation, evaluate
from splashpy.training.examples import Example
from splashpy.training.export import export
from splashpy.training.files import read_json
from splashpy.training.head import frequent_tokens
from splashpy.training.init import Geometry, Student, load_student, new_student
from splashpy.training.lessons import Lessons
from splashpy.training.mask_token import (
    MaskToken,
    choose_mask_token,
    named_mask_token,
)
from splashpy.training.plan import TrainingPlan
from splashpy.training.teacher import Teacher
from splashpy.training.trainer import Metrics, Outcome, Trainer

EPOCHS = 6
"""How often a run of no certain length sees every text."""

LIKELY = 8
"""Expected tokens of a position that are kept for distillation."""

_LESSONS_BYTES = 10_000_000_000  # the most that is kept unless more is asked for
_TRIAL = ".trial-"
_TIMED_TEXTS = 2
_ENOUGH = 1 << 40  # bytes: what is timed is kept, so that a step is timed alone


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a run takes and what it needs, measured on its own texts.

    Attributes:
        step_seconds: of one update.
        lesson_seconds: of the target's pass over one text.
        texts_per_step: texts of one update.
        kept_texts: texts whose lessons are kept; 0 when the disk has no room for all.
        memory: bytes of one update beside the target, roughly and rather too many.
    """

    step_seconds: float
    lesson_seconds: float
    texts_per_step: int
    kept_texts: int
    memory: int

    def seconds(self, steps: int) -> float:
        """How long so many steps take."""
        passes = steps * self.texts_per_step
        if self.kept_texts:
            passes = min(passes, self.kept_texts)
        return steps * self.step_seconds + passes * self.lesson_seconds

    def steps_within(self, seconds: float) -> int:
        """How many steps fit, at least one."""
        most = int(seconds / self.step_seconds)
        return max(bisect_right(range(most + 1), seconds, key=self.seconds) - 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One run.

    Attributes:
        teacher: the target.
        student: the drafter; changed in place.
        examples: every text, those that are held out included.
        plan: of the steps.
        directory: where everything of the run lies.
        lessons_bytes: disk for lessons.
        bits: of the finished drafter's matrices; None keeps what it began with.
    """

    teacher: Teacher
    student: Student
    examples: Sequence[Example]
    plan: TrainingPlan
    directory: Path
    lessons_bytes: int = 0
    bits: int | None = None

    @property
    def run(self) -> Path:
        """Where checkpoints and metrics are."""
        return self.directory / "run"

    @property
    def drafter(self) -> Path:
        """Where the finished drafter is."""
        return self.directory / "drafter"

    @property
    def taught(self) -> list[Example]:
        """Texts it learns from."""
        return [each for each in self._usable if not each.held_out(self.plan.held_out)]

    @property
    def held_out(self) -> list[Example]:
        """Texts it never learns from."""
        return [each for each in self._usable if each.held_out(self.plan.held_out)]

    @property
    def steps_done(self) -> int:
        """Steps of earlier sittings."""
        latest = Checkpoints(self.run).latest
        return int(read_json(latest / "state.json")["step"]) if latest else 0

    @property
    def default_steps(self) -> int:
        """Steps that show every text ``EPOCHS`` times."""
        return -(-EPOCHS * len(self.taught) // self._texts_per_step)

    @property
    def frequent(self) -> list[int] | None:
        """The only tokens to learn and to draft, ascending; None is any."""
        if self.plan.frequent_tokens is None:
            return None
        answers = (each.token_ids[each.start :] for each in self.taught)
        return frequent_tokens(answers, self.plan.frequent_tokens)

    def check(self, prompts: int) -> None:
        """Find what would fail only at the end.

        Args:
            prompts: how many held-out ones are to be decoded then.

        Raises:
            UsageError: there is none, or there are too few tokens to draft.
        """
        if self.examples and prompts and not self.held_out:
            raise UsageError(
                "no conversation is held out, so nothing can be evaluated",
                why=f"{len(self.taught)} texts, --held-out {self.plan.held_out:g}",
                fix=["a larger --held-out, or more texts", "--eval-prompts 0"],
            )
        frequent, least = self.frequent, self.student.network.config.selector_top_k
        if frequent is not None and len(frequent) < least:
            raise UsageError(
                f"{len(frequent)} frequent tokens are too few to draft",
                why=f"the selector chooses from {least} candidates",
                fix=["a larger --frequent-tokens, or more texts"],
            )

    def pace(self, memory_limit: int) -> Pace:
        """Measure a step; nothing is learned and nothing is left behind.

        Raises:
            UsageError: there is nothing to learn from.
            CapacityError: a step needs more memory than allowed.
            DiskSpaceError: there is no room for checkpoints.
        """
        weights: Any = tree_flatten(self.student.network.parameters())
        size = 3 * sum(array.nbytes for _, array in weights)  # with two moments
        check_free("training", (self.directory, size * (KEPT + 1)))
        # A learning rate of nothing leaves the weights as they are.
        plan = replace(self.plan, steps=1, learning_rate=0.0)
        with tempfile.TemporaryDirectory(dir=self.directory, prefix=_TRIAL) as place:
            lessons = self._lessons(Path(place) / "lessons", _ENOUGH)
            trial = Trainer(
                self.student,
                self.teacher.target,
                self.examples,
                lessons,
                plan,
                Path(place),
                memory_limit=memory_limit,
            )
            began = perf_counter()
            timed = self.taught[-_TIMED_TEXTS:]
            sizes = [lessons.of(each).features.nbytes for each in timed]
            lesson_seconds = (perf_counter() - began) / len(timed)
            kept = sum(sizes) / len(sizes) * len(self.taught) <= self.lessons_bytes
            return Pace(
                step_seconds=trial.time_step(),
                lesson_seconds=lesson_seconds,
                texts_per_step=self._texts_per_step,
                kept_texts=len(self.taught) if kept else 0,
                memory=trial.memory,
            )

    def train(
        self,
        memory_limit: int,
        cancelled: Callable[[], bool],
        progress: Callable[[int, Metrics], None],
    ) -> Outcome:
        """Do the steps that are left.

        Raises:
            UsageError: the directory holds another run.
            CapacityError: a step needs more memory than allowed.
            InputFileError: the last checkpoint is damaged.
        """
        trainer = Trainer(
            self.student,
            self.teacher.target,
            self.examples,
            self._lessons(self.directory / "lessons", self.lessons_bytes),
            self.plan,
            self.run,
            memory_limit=memory_limit,
        )
        return trainer.run(cancelled, progress)

    def finish(self) -> None:
        """Write the drafter, and remove what only the training needed."""
        frequent = self.frequent
        export(self.student, self.drafter, bits=self.bits, frequent_tokens=frequent)
        for unneeded in (
            self.directory / "lessons",
            *self.directory.glob(f"{_TRIAL}*"),  # of a process that was killed
        ):
            shutil.rmtree(unneeded, ignore_errors=True)

    def evaluate(
        self, prompts: int, max_tokens: int, cancelled: Callable[[], bool]
    ) -> Evaluation:
        """Decode held-out prompts with the finished drafter, as it is on disk.

        Args:
            prompts: how many at most.
            max_tokens: of every answer.
            cancelled: asked between cycles.

        Raises:
            RequestCancelled: ``cancelled`` said so.
            UsageError: no answer was longer than a token.
        """
        target = self.teacher.target
        chosen = list(dict.fromkeys(each.prompt_ids for each in self.held_out))
        network = load_drafter(self.drafter, target.facts)
        try:
            return evaluate(
                network,
                target,
                chosen[:prompts],
                max_tokens=max_tokens,
                stops=self.teacher.stops,
                cancelled=cancelled,
            )
        except ValueError as error:
            raise UsageError(
                "the held-out prompts cannot be evaluated", why=str(error)
            ) from None

    def last_metrics(self) -> Metrics:
        """The newest value of everything that was measured."""
        path = self.run / "metrics.jsonl"
        metrics: Metrics = {}
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        for line in lines:
            metrics |= json.loads(line)
        return metrics

    def write_card(
        self, name: str, licence: str, command: str, evaluation: Evaluation | None
    ) -> None:
        """Put a model card beside the drafter."""
        metrics = self.last_metrics()
        steps = metrics.pop("step", 0)
        card = ModelCard(
            name=f"{Path(name).name}-dflash2",
            target=name,
            licence=licence,
            command=command,
            steps=int(steps),
            examples=self.taught,
            held_out=self.held_out,
            metrics=metrics,
            evaluation=evaluation,
        )
        write_card(card, self.drafter)

    @property
    def _usable(self) -> list[Example]:
        return [each for each in self.examples if candidates(each)]

    @property
    def _texts_per_step(self) -> int:
        return self.plan.sequences * self.plan.accumulation

    def _lessons(self, place: Path, budget: int) -> Lessons:
        return Lessons(
            self.teacher.target,
            self.student.network.config.feature_layers,
            likely=LIKELY if self.plan.objective.distillation else 0,
            directory=place if budget else None,
            budget=budget,
        )


def room_for_lessons(directory: Path) -> int:
    """Bytes of disk that lessons take unless something else is said."""
    free = max(free_bytes(directory) - MARGIN_BYTES, 0)
    return min(free // 2, _LESSONS_BYTES)


def begin_student(
    teacher: Teacher,
    examples: Sequence[Example],
    wishes: Mapping[str, Any],
    seed: int,
) -> tuple[Student, MaskToken]:
    """A new drafter.

    Args:
        teacher: whose words it shall guess.
        examples: what it will learn from.
        wishes: fields of :class:`Geometry`; what is missing is chosen.
        seed: of the weights that are drawn.

    Returns:
        The drafter, and what its mask token is.

    Raises:
        UsageError: there is no such mask token, or none could be chosen.
        ModelKindError, PairError: the geometry is impossible.
    """
    target, speech, chosen = teacher.target, teacher.speech, dict(wishes)
    named = chosen.pop("mask_token_id", None)
    vocabulary = target.facts.vocab_size
    if named is None:
        mask = choose_mask_token(speech, vocabulary, examples)
    else:
        mask = named_mask_token(named, speech, vocabulary, examples)
    geometry = Geometry(mask_token_id=mask.token_id, **chosen)
    return new_student(target, geometry, seed), mask


def continue_student(teacher: Teacher, directory: Path, plan: TrainingPlan) -> Student:
    """A drafter that was trained before.

    Raises:
        UsageError: it has no selector, and only that is to be trained.
        PackageError: it is no drafter for this target, or damaged.
    """
    student = load_student(directory, teacher.target)
    if plan.only == "selector" and student.network.config.version != 2:
        raise UsageError(
            f"{directory} has no selector to train",
            why="it is a DFlash drafter; DFlash 2 brought the selector",
        )
    return student
