# SPDX-License-Identifier: Apache-2.0
"""Twelve short prompts that need no download: the ``quick`` suite.

Three of each kind, since drafts do well and badly on different kinds of text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["chat", "code", "math", "edit"]


@dataclass(frozen=True, slots=True)
class QuickPrompt:
    """One user message and what kind of answer it asks for."""

    kind: Kind
    text: str


QUICK: tuple[QuickPrompt, ...] = (
    QuickPrompt("chat", "What makes a good cup of tea?"),
    QuickPrompt("chat", "Describe a walk through a forest in autumn."),
    QuickPrompt("chat", "Give three tips for somebody who wants to learn to swim."),
    QuickPrompt("code", "Write a Python function that reverses a string."),
    QuickPrompt("code", "Write a Python function that returns the largest of a list."),
    QuickPrompt("code", "Explain what a for loop does and show a small example."),
    QuickPrompt("math", "A baker sells 12 loaves at 3 dollars each. How much is that?"),
    QuickPrompt("math", "What is the sum of the numbers from 1 to 10? Show the steps."),
    QuickPrompt("math", "A train goes 60 miles in one hour. How far in three hours?"),
    QuickPrompt(
        "edit",
        "Correct the spelling and repeat the text: The wether was fine and we went "
        "to the beech. We swam in the sea and bilt a castle of sand.",
    ),
    QuickPrompt(
        "edit",
        "Rewrite this list in alphabetical order: pear, apple, cherry, banana, grape.",
    ),
    QuickPrompt(
        "edit",
        "Repeat this sentence five times: the quick brown fox jumps over the lazy dog.",
    ),
)
