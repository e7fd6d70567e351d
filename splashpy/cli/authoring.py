# SPDX-License-Identifier: Apache-2.0
"""A model is loaded and writes texts: with consent, with progress, until stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splashpy.cli.invocation import Invocation
from splashpy.cli.questions import confirm
from splashpy.cli.signals import Interrupts
from splashpy.units import format_seconds

if TYPE_CHECKING:
    from splashpy.package.library import InstalledModel
    from splashpy.training.teacher import Teacher
    from splashpy.training.texts import Assignment

ASK_ABOVE_SECONDS = 3600.0  # shorter work is not worth a question


def open_teacher(
    invocation: Invocation, found: InstalledModel, interrupts: Interrupts
) -> Teacher:
    """Load the model.

    Raises:
        SplashError: it cannot be loaded.
        KeyboardInterrupt: somebody asked to stop.
    """
    from splashpy.package.model_directory import ModelDirectory
    from splashpy.training.teacher import Teacher

    progress = invocation.progress()
    try:
        teacher = Teacher.open(ModelDirectory.open(found.path), progress.update)
    finally:
        progress.close()
    interrupts.check()
    return teacher


def agreed(invocation: Invocation, what: str, seconds: float) -> bool:
    """Ask before work that takes long.

    Raises:
        UsageError: nobody can be asked and --yes was not given.
    """
    if seconds <= ASK_ABOVE_SECONDS:
        return True
    return confirm(invocation, f"{what} for about {format_seconds(seconds)}?")


def agreed_to_write(
    invocation: Invocation, assignment: Assignment, teacher: Teacher
) -> bool:
    """Say how long the texts will take; ask when it is long.

    Raises:
        UsageError: nobody can be asked and --yes was not given.
    """
    left = assignment.left
    if not left:
        return True
    seconds = assignment.seconds(teacher)
    about = f"{left:,} conversations to write: at most {format_seconds(seconds)}"
    invocation.output.note(about)
    return agreed(invocation, "Write texts", seconds)


def write(
    invocation: Invocation,
    assignment: Assignment,
    teacher: Teacher,
    interrupts: Interrupts,
) -> None:
    """Write what is left of a corpus.

    Raises:
        SplashError: the model cannot write, or the corpus was begun in another way.
        KeyboardInterrupt: somebody asked to stop; whole batches are kept.
    """
    output = invocation.output
    progress = invocation.progress()
    try:
        finished = assignment.write(
            teacher, lambda: interrupts.requested, progress.texts
        )
    finally:
        progress.close()
    if not finished:
        done = assignment.conversations - assignment.left
        output.note(f"{done:,} of {assignment.conversations:,} conversations are kept")
        interrupts.check()
