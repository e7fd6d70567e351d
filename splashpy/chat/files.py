# SPDX-License-Identifier: Apache-2.0
"""Files to send with a message: found by name, read whole or refused."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from splashpy.chat.entries import Attachment
from splashpy.errors import InputFileError
from splashpy.units import format_bytes

LARGEST_FILE = 1 << 20  # bytes; more would fill most contexts
_MOST_FILES = 20_000
_PATIENCE_SECONDS = 5.0
_PASSED_OVER = ("node_modules", "__pycache__")


def path_of(text: str) -> Path:
    """The path a person wrote: in quotes or not, from ``~`` or not.

    Raises:
        InputFileError: the home directory it names is not known.
    """
    try:
        return Path(text.strip("'\"")).expanduser()
    except RuntimeError as error:
        raise InputFileError(f"{text} is no path", why=str(error)) from None


def read(path: Path, name: str = "") -> Attachment:
    """A text file, whole.

    Args:
        path: of the file.
        name: that is shown; empty uses the path as given.

    Raises:
        InputFileError: it cannot be read, is too large, or is not text.
    """
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise InputFileError(f"{path} is not a file")
        if size > LARGEST_FILE:
            raise InputFileError(
                f"{path} has {format_bytes(size)}",
                why=f"{format_bytes(LARGEST_FILE)} is the most that is sent whole",
            )
        data = path.read_bytes()
    except OSError as error:
        raise InputFileError(
            f"{path} cannot be read", why=error.strerror or ""
        ) from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        kind = path.suffix.lstrip(".") or "binary"
        raise InputFileError(f"{path} is a {kind} file, not UTF-8 text") from None
    if "\0" in text:
        raise InputFileError(f"{path} is not text")
    return Attachment(name or str(path), text)


def below(folder: Path) -> list[str]:
    """Files below a directory, relative to it, without those git ignores.

    At most 20,000; hidden directories are passed over where git does not decide.
    """
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "-co", "--exclude-standard"],
            cwd=folder,
            capture_output=True,
            timeout=_PATIENCE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return list(islice(_walk(folder), _MOST_FILES))
    names = listed.stdout.decode("utf-8", "replace").split("\0")
    return [name for name in names if name][:_MOST_FILES]


def _walk(folder: Path) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in _PASSED_OVER
        )
        for name in sorted(files):
            if not name.startswith("."):
                yield os.path.relpath(Path(place) / name, folder)


def matching(names: Sequence[str], word: str, most: int) -> list[str]:
    """Names whose letters contain those of a word in order, the closest first.

    Args:
        names: to look through.
        word: what was typed; case does not matter.
        most: names to return.
    """
    wanted = word.lower()
    scored = []
    for name in names:
        score = _distance(name.lower(), wanted)
        if score is not None:
            scored.append((score, len(name), name))
    return [name for _, _, name in sorted(scored)[:most]]


def _distance(name: str, word: str) -> int | None:
    """How far the letters are apart; those in the file's own name come first."""
    base = name.rpartition("/")[2]
    if word in base:
        return base.index(word)
    if word in name:
        return len(name)
    at, first = -1, -1
    for letter in word:
        at = name.find(letter, at + 1)
        if at < 0:
            return None
        first = at if first < 0 else first
    return 2 * len(name) + at - first
