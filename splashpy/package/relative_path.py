# SPDX-License-Identifier: Apache-2.0
"""Which paths a package may name: plain relative ones that cannot leave it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

_LONGEST = 1024  # what macOS takes at most; nothing is compared in quadratic time
_FORBIDDEN = set("\\*?[]:")  # separators and patterns elsewhere; ':' a Windows drive


def problem(path: str) -> str:
    """Why this path is refused; empty when it is a good one.

    Good is a non-empty relative POSIX path in its shortest form, without ``..``,
    backslashes, patterns or control characters.
    """
    if not path or path == ".":
        return "is empty"
    if len(path) > _LONGEST:
        return f"has more than {_LONGEST} characters"
    if any(ord(character) < 0x20 or character == "\x7f" for character in path):
        return "contains a control character"
    if any("\ud800" <= character <= "\udfff" for character in path):
        return "is not valid Unicode"
    forbidden = sorted(_FORBIDDEN & set(path))
    if forbidden:
        return f"contains {forbidden[0]!r}"
    pure = PurePosixPath(path)
    if pure.is_absolute():
        return "is absolute"
    if leaves(path):
        return "leaves the package"
    if str(pure) != path:
        return f"is not in its shortest form {str(pure)!r}"
    return ""


def leaves(path: str) -> bool:
    """Whether a path could lead out of the directory it is below."""
    pure = PurePosixPath(path.replace("\\", "/"))
    return pure.is_absolute() or ".." in pure.parts


def first_conflict(paths: Iterable[str]) -> str:
    """A path that occurs twice, or that is also the parent of another; else empty.

    Upper and lower case count as equal, as they do on a Mac's disk.
    """
    folded: set[str] = set()
    for path in paths:
        if path.casefold() in folded:
            return path
        folded.add(path.casefold())
    for path in folded:
        for parent in PurePosixPath(path).parents:
            if str(parent) in folded:
                return str(parent)
    return ""
