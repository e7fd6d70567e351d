# SPDX-License-Identifier: Apache-2.0
"""What could be meant by what is typed: commands after ``/``, files after ``@``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from splashpy.chat import commands, files
from splashpy.chat.widgets.popup import Choice

_MOST_CHOICES = 50


class Completions:
    """Choices for a text; files are listed once, in the background.

    Args:
        refresh: called from another thread when the list of files is there.
        folder: where files are looked for; None: the working directory.
    """

    def __init__(self, refresh: Callable[[], object], folder: Path | None = None):
        self._refresh = refresh
        self._folder = folder or Path.cwd()
        self._files: Sequence[str] | None = None
        self._reading = False

    def choices(self, text: str, word: str) -> list[Choice]:
        """What may stand in place of the word before the cursor.

        Args:
            text: all of it.
            word: from the last space to the cursor.
        """
        name = commands.parse_quietly(text)
        if name is not None and text == f"/{name}" and "\n" not in text:
            return [
                Choice(
                    f"/{row.name} " if row.arguments else f"/{row.name}",
                    f"/{row.name} {row.arguments}".rstrip(),
                    row.help,
                )
                for row in commands.matching(name)
            ]
        if not word.startswith("@"):
            return []
        if self._files is None:
            self._read()
            return []
        found = files.matching(self._files, word[1:], _MOST_CHOICES)
        return [Choice(f"@{name} ", name) for name in found]

    def _read(self) -> None:
        if not self._reading:
            self._reading = True
            threading.Thread(target=self._list, name="files", daemon=True).start()

    def _list(self) -> None:
        self._files = files.below(self._folder)
        self._refresh()
