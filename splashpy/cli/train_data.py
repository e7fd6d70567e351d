# SPDX-License-Identifier: Apache-2.0
"""``splashpy train data``: let a model write the texts its drafter learns from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from splashpy.cli.authoring import agreed_to_write, open_teacher, write
from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON
from splashpy.cli.page import Page, PageCommand
from splashpy.cli.signals import Interrupts
from splashpy.cli.train_settings import Settings
from splashpy.cli.training_options import TRAINING_ROWS
from splashpy.errors import UsageError

if TYPE_CHECKING:
    from splashpy.training.examples import Example
    from splashpy.training.texts import Assignment


def train_data(invocation: Invocation) -> int:
    """Write a corpus, or go on with one; returns the exit code.

    Raises:
        SplashError: usage, model or file errors.
        KeyboardInterrupt: somebody asked to stop.
    """
    from splashpy.cli.resolve import find_or_build
    from splashpy.training.texts import read_texts

    given, output = invocation.given, invocation.output
    assignment = _assignment(given)
    with Interrupts(output.err) as interrupts:
        found = find_or_build(invocation, given["model"], interrupts)
        teacher = open_teacher(invocation, found, interrupts)
        if not agreed_to_write(invocation, assignment, teacher):
            return 1
        try:
            write(invocation, assignment, teacher, interrupts)
        except KeyboardInterrupt:
            output.note("the same command goes on from here")
            raise
    _tell(invocation, assignment, read_texts(teacher, assignment.directory), found.name)
    return 0


def _assignment(given: Any) -> Assignment:
    """What is to be written.

    Raises:
        UsageError: it is not said where, or options do not go together.
        InputFileError: the file of questions cannot be used.
    """
    from splashpy.training.texts import Assignment, read_questions

    if given["into"] is None:
        raise UsageError(
            "-o DIR is missing",
            why="the texts go there",
            fix=["splashpy train data demo -o texts"],
        )
    directory = Path(given["into"]).expanduser()
    if directory.is_file():
        raise UsageError(f"-o {directory} is a file", fix=["-o a new directory"])
    settings = Settings.of_texts(directory, given)
    source = given["questions"]
    questions = read_questions(Path(source).expanduser()) if source else None
    return Assignment(directory, settings.writing(), questions)


def _tell(
    invocation: Invocation, assignment: Assignment, texts: list[Example], model: str
) -> None:
    output, directory = invocation.output, str(assignment.directory)
    tokens = sum(len(each.token_ids) - each.start for each in texts)
    if output.json:
        fields = {"model": model, "directory": directory}
        counts = {"texts": len(texts), "answer_tokens": tokens}
        written = {"conversations": assignment.conversations}
        output.document("train_data", {**fields, **written, **counts})
        return
    output.note(f"{len(texts):,} different texts with {tokens:,} answer tokens")
    following = ["splashpy", "train", model, "--data", directory, "-o"]
    output.note(f"next: {shlex.join(following)} DIR")
    output.result(directory)


TRAIN_DATA = PageCommand(
    "train data",
    page=Page(
        usage="[MODEL] [FILE]",
        summary="Let a model write the texts its drafter learns from.",
        examples=(
            (
                "splashpy train data demo -o texts",
                "the model invents questions and answers them",
            ),
            (
                "splashpy train data demo questions.jsonl -o texts",
                "it answers the questions of a file",
            ),
        ),
        notes=(
            'A line of FILE is {"prompt": "..."} or {"messages": [...]}; answers in it',
            "are dropped and written anew by the model. The same command goes on with",
            "texts that were not finished; with a larger --conversations it adds some.",
            "Ctrl-C keeps whole batches and exits with 130.",
        ),
    ),
    arguments=(
        click.Argument(["model"], required=False, metavar="[MODEL]"),
        click.Argument(["questions"], required=False, metavar="[FILE]"),
    ),
    options=(
        *(row.name for row in TRAINING_ROWS["Texts"]),
        "training_seed",
        "into",
        *COMMON,
    ),
    run=train_data,
)
