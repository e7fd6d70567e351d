# SPDX-License-Identifier: Apache-2.0
"""What is asked: the built-in questions, and how a suite's file becomes questions.

Names, splits and the words around each question are those of the benchmarks the
``dflash`` 0.1.0 package runs, so figures can be compared. Of a large suite the first N
of a fixed shuffle are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from splashpy.bench.prompts import QUICK

BUILT_IN = ("quick", "context")
CONTEXTS = (2048, 8192, 32768)
"""Prompt lengths of the ``context`` suite where none are asked for, in tokens."""

_BOX = (
    "\nPlease reason step by step, and put your final answer within \\boxed{{}}."
).format()
_SHUFFLE_SEED = 42


@dataclass(frozen=True, slots=True)
class Question:
    """One conversation to be held.

    Attributes:
        suite: where it comes from.
        id: unique in its suite.
        kind: of answer it asks for.
        turns: what the user says, one after the other.
        length: prompt tokens it is to be filled up to; 0 leaves it as it is.
    """

    suite: str
    id: str
    kind: str
    turns: tuple[str, ...]
    length: int = 0


@dataclass(frozen=True, slots=True)
class HubSuite:
    """Questions that are kept on the Hugging Face hub.

    Attributes:
        repo: the dataset.
        file: path of the split in it.
        turns: what is said about one row.
    """

    repo: str
    file: str
    turns: Callable[[Mapping[str, Any]], Sequence[str]]


HUB: dict[str, HubSuite] = {
    "gsm8k": HubSuite(
        "openai/gsm8k",
        "main/test-00000-of-00001.parquet",
        lambda row: [row["question"] + _BOX],
    ),
    "math500": HubSuite(
        "HuggingFaceH4/MATH-500",
        "test.jsonl",
        lambda row: [row["problem"] + _BOX],
    ),
    "humaneval": HubSuite(
        "openai/openai_humaneval",
        "openai_humaneval/test-00000-of-00001.parquet",
        lambda row: [
            "Write a solution to the following problem and make sure that it passes "
            f"the tests:\n```python\n{row['prompt']}\n```"
        ],
    ),
    "mbpp": HubSuite(
        "google-research-datasets/mbpp",
        "sanitized/test-00000-of-00001.parquet",
        lambda row: [row["prompt"]],
    ),
    "mt-bench": HubSuite(
        "HuggingFaceH4/mt_bench_prompts",
        "raw/question.jsonl",
        lambda row: row.get("prompt") or row["turns"],
    ),
}

NAMES = ("quick", *HUB, "context")


def quick_questions(count: int | None = None) -> list[Question]:
    """The built-in prompts, of every kind alike where fewer are wanted."""
    numbered = list(enumerate(QUICK))
    # Three of each kind stand together; a part of them takes one of each in turn.
    spread = (
        numbered if count is None else numbered[0::3] + numbered[1::3] + numbered[2::3]
    )
    return [
        Question("quick", str(index), prompt.kind, (prompt.text,))
        for index, prompt in spread[:count]
    ]


def context_questions(lengths: Sequence[int]) -> list[Question]:
    """One long prompt of every length, filled up by whoever can count tokens."""
    return [
        Question(
            "context",
            str(length),
            "context",
            ("Summarise the notes above in five sentences.",),
            length,
        )
        for length in lengths
    ]


def hub_questions(
    name: str, rows: Sequence[Mapping[str, Any]], count: int | None
) -> list[Question]:
    """Questions of a downloaded suite, shuffled the same way each time.

    Raises:
        KeyError: a row lacks what the suite's questions are made of.
    """
    order = np.random.default_rng(_SHUFFLE_SEED).permutation(len(rows))[:count]
    return [
        Question(name, str(int(index)), name, tuple(HUB[name].turns(rows[index])))
        for index in order
    ]
