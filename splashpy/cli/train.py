# SPDX-License-Identifier: Apache-2.0
"""``splashpy train``: train a drafter for a model, on the machine the model runs on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import click

from splashpy.cli.authoring import agreed, agreed_to_write, open_teacher, write
from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON
from splashpy.cli.page import Page, PageCommand
from splashpy.cli.progress import ProgressLine
from splashpy.cli.signals import Interrupts
from splashpy.cli.train_report import Report, estimate, facts, live
from splashpy.cli.train_settings import Settings
from splashpy.cli.training_options import TRAINING_ROWS
from splashpy.errors import ModelResultError, RequestCancelled

if TYPE_CHECKING:
    from splashpy.package.library import InstalledModel
    from splashpy.training.course import Course, Pace
    from splashpy.training.evaluate import Evaluation
    from splashpy.training.examples import Example
    from splashpy.training.init import Student
    from splashpy.training.teacher import Teacher
    from splashpy.training.trainer import Metrics

EVAL_PROMPTS = 16
EVAL_TOKENS = 128


def train(invocation: Invocation) -> int:
    """Train a drafter, or go on with that; returns the exit code.

    Raises:
        SplashError: usage, model, file or memory errors.
        DraftCheckError: the engine accepts other drafts than the trainer counts.
        KeyboardInterrupt: somebody asked to stop.
    """
    from splashpy.cli.resolve import find_or_build

    settings = Settings.of(invocation)
    with Interrupts(invocation.output.err) as interrupts:
        word = invocation.given["model"] or settings.model or None
        found = find_or_build(invocation, word, interrupts)
        settings.check_model(_lasting_name(found))
        teacher = open_teacher(invocation, found, interrupts)
        return _Sitting(invocation, settings, interrupts, teacher, found).run()


def _lasting_name(found: InstalledModel) -> str:
    """A name that means the same model from every directory."""
    return str(found.path.resolve()) if found.origin == "directory" else found.name


@dataclass(slots=True)
class _Sitting:
    """One call of the command: a run, or what is left of one."""

    invocation: Invocation
    settings: Settings
    interrupts: Interrupts
    teacher: Teacher
    found: InstalledModel

    def run(self) -> int:
        """Go through all stages; returns the exit code."""
        try:
            texts = self._texts()
            if texts is None:
                return 1
            course = self._planned(self._course(texts))
            if course is None:
                return 1
            steps = self._learn(course)
            course.finish()
            evaluation = self._evaluate(course)
        except (KeyboardInterrupt, RequestCancelled):
            if self.settings.recorded:
                self.invocation.output.note(f"to go on: {self._resume_command}")
            self.interrupts.check()
            raise
        return self._tell(course, steps, evaluation)

    @property
    def _resume_command(self) -> str:
        yes = self.invocation.given["yes"]
        return self.settings.resume_command(self.found.name, yes=yes)

    def _texts(self) -> list[Example] | None:
        """Every text; None where a person did not want them written."""
        from splashpy.training.texts import Assignment, read_questions, read_texts

        settings = self.settings
        data = settings.data
        if data and data[0].is_dir():
            return read_texts(self.teacher, *data)
        if not data and settings.get("steps") == 0:
            return []
        questions = read_questions(data[0]) if data else None
        self._student([])  # an impossible drafter is found before the work begins
        directory = settings.directory / "texts"
        assignment = Assignment(directory, settings.writing(), questions)
        if not agreed_to_write(self.invocation, assignment, self.teacher):
            return None
        self._record()
        write(self.invocation, assignment, self.teacher, self.interrupts)
        return read_texts(self.teacher, directory)

    def _record(self, **more: int) -> None:
        self.settings = self.settings.record(_lasting_name(self.found), **more)

    def _student(self, texts: list[Example]) -> tuple[Student, str]:
        from splashpy.training.course import begin_student, continue_student

        settings = self.settings
        init = settings.get("init")
        if init is None:
            wishes, seed = settings.geometry, settings.seed
            student, mask = begin_student(self.teacher, texts, wishes, seed)
            return student, str(mask)
        directory = Path(self.invocation.drafter_directory(init, "--init"))
        return continue_student(self.teacher, directory, settings.plan(0)), ""

    def _course(self, texts: list[Example]) -> Course:
        from splashpy.training.course import Course, room_for_lessons

        settings, output = self.settings, self.invocation.output
        student, about = self._student(texts)
        settings.directory.mkdir(parents=True, exist_ok=True)
        disk, room = settings.get("disk"), room_for_lessons(settings.directory)
        course = Course(
            teacher=self.teacher,
            student=student,
            examples=texts,
            plan=settings.plan(settings.get("steps") or 0),
            directory=settings.directory,
            lessons_bytes=disk if disk is not None else room,
            bits=settings.get("bits"),
        )
        for fact in [about, *facts(course)] if about else facts(course):
            output.note(fact)
        return course

    def _planned(self, course: Course) -> Course | None:
        """The course with its steps; None where a person did not want them."""
        steps = self.settings.get("steps")
        course.check(self._prompts)
        if steps is None or steps > course.steps_done:
            pace = self._pace(course)
            minutes = self.settings.get("minutes")
            if steps is None and minutes is not None:
                steps = pace.steps_within(60 * minutes)
            elif steps is None:
                steps = course.default_steps
            course = replace(course, plan=replace(course.plan, steps=steps))
            left = steps - course.steps_done
            self.invocation.output.note(estimate(course, pace, left))
            # Who names the minutes knows them.
            seconds = 0.0 if minutes is not None else pace.seconds(left)
            if not agreed(self.invocation, "Train", seconds):
                return None
        self._record(steps=steps)
        return course

    def _pace(self, course: Course) -> Pace:
        progress = self.invocation.progress()
        progress.stage("pace")
        try:
            pace = course.pace(self._memory)
        finally:
            progress.close()
        self.interrupts.check()
        return pace

    def _learn(self, course: Course) -> int:
        """Do the steps that are left; returns how many are done in all."""
        if not course.examples:
            return 0
        output, progress = self.invocation.output, self.invocation.progress()
        planned = course.plan.steps
        if planned:
            progress.steps(course.steps_done, planned, 0.0, "")
        try:
            outcome = course.train(
                self._memory, self._stopping(), _shower(progress, course)
            )
        finally:
            progress.close()
        if self.interrupts.requested:
            output.note(f"stopped after step {outcome.steps:,} of {planned:,}")
            self.interrupts.check()
        if not outcome.finished:
            output.warn(
                f"the time was over after step {outcome.steps:,} of {planned:,}, with "
                f"the learning rate still high; for the rest: {self._resume_command}"
            )
        return outcome.steps

    def _stopping(self) -> Callable[[], bool]:
        """Whether steps should end: somebody asked, or the time is over."""
        minutes = self.settings.get("minutes")
        limit = math.inf if minutes is None else perf_counter() + 60 * minutes
        return lambda: self.interrupts.requested or perf_counter() >= limit

    def _evaluate(self, course: Course) -> Evaluation | None:
        if not course.examples or not self._prompts:
            return None
        progress = self.invocation.progress()
        progress.stage("evaluate")
        try:
            return course.evaluate(
                self._prompts,
                self.settings.get("eval-tokens") or EVAL_TOKENS,
                lambda: self.interrupts.requested,
            )
        finally:
            progress.close()

    def _tell(self, course: Course, steps: int, evaluation: Evaluation | None) -> int:
        """Write the model card, print the result; returns the exit code.

        Raises:
            DraftCheckError: the engine accepts other drafts than the trainer counts.
        """
        output, name = self.invocation.output, self.found.name
        licence = self.settings.get("license") or self.teacher.licence
        # A directory of this machine says nothing to a reader of the card.
        public = self.found.path.name if self.found.origin == "directory" else name
        course.write_card(public, licence, self.settings.command(name), evaluation)
        report = Report(
            model=name,
            course=course,
            steps=steps,
            metrics=course.last_metrics(),
            evaluation=evaluation,
            resume=self._resume_command,
        )
        fault = report.fault()
        if output.json:
            output.document("train", report.fields())
            return fault.exit_code if fault else 0
        for line in report.lines():
            output.result(line)
        if fault:
            raise fault
        return 0

    @property
    def _prompts(self) -> int:
        chosen = self.settings.get("eval-prompts")
        return EVAL_PROMPTS if chosen is None else chosen

    @property
    def _memory(self) -> int:
        return self.teacher.room(self.settings.get("max-memory"))


def _shower(progress: ProgressLine, course: Course) -> Callable[[int, Metrics], None]:
    """What shows every line of metrics.

    The function raises ModelResultError when the loss is no number any more.
    """
    plan = course.plan
    blocks = plan.sequences * plan.anchors * plan.accumulation

    def show(step: int, metrics: Metrics) -> None:
        if not math.isfinite(metrics["loss"]):
            raise ModelResultError(
                f"the loss is {metrics['loss']} after step {step:,}",
                why=f"the learning rate is {metrics['learning_rate']:.2g}",
                fix=["a smaller --learning-rate, and a new directory"],
            )
        rate = 1 / metrics["seconds_per_step"]
        progress.steps(step, plan.steps, rate, live(metrics, blocks))

    return show


TRAIN = PageCommand(
    "train",
    page=Page(
        usage="[MODEL]",
        summary="Train a drafter for a model.",
        examples=(
            (
                "splashpy train demo -o run --minutes 60",
                "the model writes the texts itself, then an hour of steps",
            ),
            (
                "splashpy train demo --data texts -o run --block-size 6",
                "with texts of splashpy train data",
            ),
            (
                "splashpy train demo --data texts --init run/drafter -o more",
                "continue with a drafter that exists",
            ),
        ),
        notes=(
            "Ctrl-C keeps a checkpoint, and --resume goes on. DIR/drafter is the",
            "result, DIR/run/metrics.jsonl the curve. Exit codes: 130 after Ctrl-C;",
            "5 when the engine accepts other drafts than the trainer counts.",
        ),
    ),
    arguments=(click.Argument(["model"], required=False, metavar="[MODEL]"),),
    options=(
        *(row.name for rows in TRAINING_ROWS.values() for row in rows),
        *COMMON,
    ),
    run=train,
)
