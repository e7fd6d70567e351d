# SPDX-License-Identifier: Apache-2.0
"""Rows of the table of options that ``splashpy bench`` takes."""

from __future__ import annotations

from splashpy.cli import values
from splashpy.cli.option import Option

SUITES = ("quick", "gsm8k", "math500", "humaneval", "mbpp", "mt-bench", "context")
ARMS = ("draft", "plain")
MOST_PEOPLE = 64


def arms(value: str) -> tuple[str, ...]:
    """Arms with commas between them, each once.

    Raises:
        ValueError: the text is no such list.
    """
    names = tuple(part.strip() for part in value.split(","))
    if len(set(names)) < len(names) or not set(names) <= set(ARMS):
        raise ValueError(f"some of {', '.join(ARMS)}, such as draft,plain")
    return names


def contexts(value: str) -> tuple[int, ...]:
    """Token counts with commas between them.

    Raises:
        ValueError: the text is no such list.
    """
    parse = values.tokens(256)
    try:
        return tuple(parse(part) for part in value.split(","))
    except ValueError:
        raise ValueError(
            "token counts of at least 256 with commas between them, such as 2K,8K"
        ) from None


def people(value: str) -> tuple[int, ...]:
    """Counts with commas between them, each once.

    Raises:
        ValueError: the text is no such list.
    """
    parse = values.integer(1, MOST_PEOPLE)
    try:
        found = tuple(parse(part.strip()) for part in value.split(","))
    except ValueError:
        found = ()
    if not found or len(set(found)) < len(found):
        raise ValueError(
            f"counts from 1 to {MOST_PEOPLE} with commas between them, such as 1,4"
        )
    return found


def fraction(value: str) -> float:
    """``2%`` or ``0.02``.

    Raises:
        ValueError: the text is neither, or not from 0 to 100 %.
    """
    text = value.strip()
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1:
        raise ValueError("a percentage below 100 such as 2%, or a fraction: 0.02")
    return number


BENCH_ROWS: dict[str, tuple[Option, ...]] = {
    "Measurement": (
        Option(
            "--suite",
            "questions to ask; all for all of them",
            "NAME",
            values.choice(*SUITES, "all"),
            default="quick",
        ),
        Option(
            "-n --questions",
            "questions of each suite",
            "N",
            values.integer(1),
            default="quick: 12, else 20",
        ),
        Option(
            "--arms",
            "with drafts, without, or in turns",
            "LIST",
            arms,
            default="draft,plain",
        ),
        Option(
            "--trials",
            "how often to ask each question",
            "N",
            values.integer(1),
            default="3",
        ),
        Option(
            "--contexts",
            "prompt lengths of the suite context",
            "LIST",
            contexts,
            default="2K,8K,32K",
            rare=True,
        ),
        Option(
            "--concurrency",
            "so many ask at once, as in 1,4",
            "LIST",
            people,
            default="1",
        ),
        Option(
            "--cooldown",
            "seconds of rest before an answer",
            "F",
            values.decimal(0),
            default="GPU 10, else 0",
            rare=True,
        ),
        Option("--out", "keep everything in DIR; go on there", "DIR", values.text),
        Option("--plot", "with --out: draw bars, too"),
        Option("--compare", "a bench.json to compare with", "FILE", values.text),
        Option(
            "--max-regression",
            "what --compare lets pass",
            "F%",
            fraction,
            default="2%",
            rare=True,
        ),
    ),
}
"""Rows under the heading they stand under on a page."""
