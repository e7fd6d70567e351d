# SPDX-License-Identifier: Apache-2.0
"""A screen that tells why something was not done, instead of failing with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from textual.screen import Screen

from splashpy.chat.entries import Problem
from splashpy.errors import InputFileError, SplashError
from splashpy.sanitize import sanitize

_T = TypeVar("_T")


class TellingScreen(Screen[None]):
    """What a person asks for is tried; a failure becomes sentences.

    Attributes:
        problem: what was refused last.
    """

    problem: Problem | None = None

    def attempt(self, deed: Callable[[], object]) -> bool:
        """Do something; False when it could not be done, which is told."""
        try:
            deed()
        except (SplashError, OSError) as error:
            self.refuse(error)
            return False
        return True

    def later(self, read: Callable[[], _T], show: Callable[[_T], object]) -> None:
        """Read what takes its time in a thread, then show it; a failure is told."""

        def work() -> None:
            try:
                found = read()
            except (SplashError, OSError) as error:
                self.app.call_from_thread(self.refuse, error)
            else:
                self.app.call_from_thread(show, found)

        self.app.run_worker(work, thread=True)

    def say(self, text: str) -> None:
        """Show a sentence for a moment."""
        self.notify(sanitize(text), markup=False)

    def refuse(self, error: SplashError | OSError) -> None:
        """Show why something was not done."""
        if isinstance(error, OSError):
            error = InputFileError(
                f"{error.filename or 'a file'} cannot be used",
                why=error.strerror or str(error),
            )
        self.problem = Problem.of(error)
        parts = [error.message, error.why, *error.fix]
        text = "\n".join(sanitize(part) for part in parts if part)
        self.notify(text, severity="error", markup=False)
