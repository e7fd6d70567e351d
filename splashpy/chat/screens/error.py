# SPDX-License-Identifier: Apache-2.0
"""One error in full: what happened, why, what to do, and the text to send to others."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from splashpy.chat.entries import Problem
from splashpy.chat.screens.page import PageScreen
from splashpy.chat.theme import FAINT
from splashpy.sanitize import sanitize, sanitize_line


class ErrorScreen(PageScreen):
    """Shows an error until it is closed; ``c`` copies it.

    Args:
        problem: the error.
        about: what its code means in general; may be empty.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "copy", "copy", show=False),
    ]

    def __init__(self, problem: Problem, about: str = ""):
        super().__init__(
            problem.code or "error",
            details(problem, about),
            keys="c copies it · esc closes",
        )
        self._problem = problem

    def action_copy(self) -> None:
        """Copy the error as text."""
        problem = self._problem
        parts = [f"{problem.code}: {problem.message}", problem.why, *problem.fix]
        self.app.copy_to_clipboard("\n".join(filter(None, parts)))


def details(problem: Problem, about: str) -> Content:
    """The page of an error.

    Args:
        problem: the error; its texts need not be sanitized.
        about: what its code means in general.
    """
    fixes = "\n".join(f"→ {step}" for step in problem.fix)
    parts = (
        ("What happened", problem.message),
        ("Why", problem.why),
        ("What to do", fixes),
        (sanitize_line(problem.code), about),
    )
    return Content("\n\n").join(
        Content.assemble((title, "bold $text-primary"), "\n", (sanitize(text), style))
        for title, text in parts
        if text
        for style in (FAINT if title == problem.code else "",)
    )
