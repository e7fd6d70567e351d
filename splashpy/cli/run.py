# SPDX-License-Identifier: Apache-2.0
"""``splashpy run``: one answer to stdout."""

from __future__ import annotations

import sys

import click

from splashpy.cli import prompt
from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON, ENGINE, SAMPLING
from splashpy.cli.page import Page, PageCommand
from splashpy.errors import UsageError

_EXCLUSIVE = (
    ("raw", "system", "--raw uses no chat template, so -s has no place in it"),
    ("raw", "messages", "--raw continues a text, --messages is a conversation"),
    ("messages", "system", "put the system message into the file of --messages"),
    ("messages", "prompt", "the last message of --messages is the prompt"),
    ("messages", "file", "put the text into the file of --messages"),
    ("extract", "extract_last", "it is one block or the other"),
    ("extract", "json_stream", "a stream of events is not cut"),
    ("json", "json_stream", "it is one document or a line for each event"),
)


def run(invocation: Invocation) -> int:
    """Answer one question; returns the exit code.

    Raises:
        SplashError: usage, model, engine or file errors.
        KeyboardInterrupt: stopped before there was an answer.
    """
    given = invocation.given
    invocation.refuse_pairs(_EXCLUSIVE)
    word, words = prompt.split_model(given["words"])
    question = ask(invocation, words)

    from splashpy.cli.writing import write_answer

    return write_answer(invocation, word, question)


def ask(invocation: Invocation, words: tuple[str, ...]) -> prompt.Question:
    """What is asked, from every place a prompt may come from.

    Raises:
        UsageError: there is no prompt.
        InputFileError: a file or standard input cannot be read.
    """
    given = invocation.given
    if given["messages"]:
        if words:
            raise UsageError(
                f"--messages and the words {' '.join(words)!r} exclude each other"
            )
        return prompt.Question(messages=prompt.read_messages(given["messages"]))
    spoken = [given["prompt"], *words] if given["prompt"] else words
    piped = prompt.read_input(sys.stdin)
    text = prompt.typed_text(spoken, given["file"], piped)
    if not text:
        raise UsageError(
            "there is no prompt",
            why="no words after the model, no -p, and nothing on standard input",
            fix=['splashpy run demo "Name three primary colours."'],
        )
    if given["raw"]:
        return prompt.Question(prompt=text)
    return prompt.ask(text, system=prompt.read_system(given["system"]))


RUN = PageCommand(
    "run",
    page=Page(
        usage="[MODEL] [PROMPT...]",
        summary="Answer one prompt on stdout.",
        examples=(
            (
                'splashpy run demo "Name three primary colours."',
                "the answer, and nothing else, on stdout",
            ),
            (
                'git diff | splashpy run demo -p "Write a commit message."',
                "standard input follows the prompt after a blank line",
            ),
            (
                "splashpy run demo --json --temp 0 Hello | jq .spec.tau",
                "one JSON document; tau counts the target's own token",
            ),
        ),
        notes=(
            "MODEL is a short name, OWNER/REPO[@REVISION] or a directory such as ./x.",
            "A first word with a space in it is a prompt, not a model.",
            "Exit codes: 0 also for a cut answer; 4 with --fail-on-length; 130 Ctrl-C.",
        ),
    ),
    arguments=(click.Argument(["words"], nargs=-1, metavar="[MODEL] [PROMPT...]"),),
    options=(
        "prompt",
        "system",
        "file",
        "messages",
        "raw",
        "prefill_only",
        "reasoning",
        "extract",
        "extract_last",
        "no_stream",
        "output",
        "stats",
        "draft_colors",
        "fail_on_length",
        "json_stream",
        "replay",
        "speed",
        *ENGINE,
        *SAMPLING,
        *COMMON,
    ),
    run=run,
)
