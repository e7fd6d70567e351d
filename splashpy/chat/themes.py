# SPDX-License-Identifier: Apache-2.0
"""All colour themes there are: Textual's, two of our own, and those of a person.

A person's are TOML files in the folder ``themes`` beside ``config.toml``. A file is
named after its theme and says what differs from our own of the same brightness::

    # themes/paper.toml
    dark = false
    background = "#FDF6E3"
    primary = "#0B62B8"

A file that cannot be used spoils nothing but its own theme: why is told to whoever asks
for it.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from textual.app import App
from textual.theme import Theme

from splashpy.chat.theme import DARK, LIGHT
from splashpy.errors import UsageError

COLOURS = (
    "primary",
    "secondary",
    "accent",
    "foreground",
    "background",
    "surface",
    "panel",
    "success",
    "warning",
    "error",
)
"""What a theme may colour."""

_COLOUR = re.compile("#[0-9A-Fa-f]{6}")
_NAME = re.compile("[A-Za-z][A-Za-z0-9_-]*")


def use_theme(app: App[Any], name: str, folder: Path | None) -> None:
    """Give an application the colours of a theme.

    Args:
        app: knows every usable theme afterwards.
        name: of the theme.
        folder: where the person's own are, read again each time; None: nowhere.

    Raises:
        UsageError: no theme has the name, or its file cannot be used.
    """
    themes, broken = read_themes(folder)
    for theme in (DARK, LIGHT, *themes):
        app.register_theme(theme)
    if name in broken:
        raise broken[name]
    if name not in app.available_themes:
        raise UsageError(
            f"there is no theme {name!r}" if name else "which theme?",
            why="themes: " + ", ".join(sorted(app.available_themes)),
        )
    app.theme = name


def read_themes(folder: Path | None) -> tuple[list[Theme], dict[str, UsageError]]:
    """The themes of a folder, and why others in it cannot be used, by their name."""
    usable: list[Theme] = []
    broken: dict[str, UsageError] = {}
    for path in sorted(folder.glob("*.toml")) if folder is not None else ():
        try:
            usable.append(read_theme(path))
        except UsageError as error:
            broken[path.stem] = error
    return usable, broken


def read_theme(path: Path) -> Theme:
    """One theme.

    Args:
        path: ``NAME.toml``.

    Raises:
        UsageError: names the file, the key, and what may stand there.
    """
    if not _NAME.fullmatch(path.stem):
        raise UsageError(
            f"{path} cannot name a theme",
            why="a name is a letter, then letters, digits, - and _",
            fix=[f"rename it, for example to {path.with_name('mine.toml')}"],
        )
    written = _parse(path)
    dark = written.pop("dark", True)
    if type(dark) is not bool:
        raise UsageError(
            f"{path}: dark is {dark!r}",
            why="it must be true or false, without quotes",
            fix=[f"edit {path}: dark = false"],
        )
    base = DARK if dark else LIGHT
    for key, value in written.items():
        _check(path, key, value, base)
    return replace(base, name=path.stem, **written)


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read", why=error.strerror or "") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text", fix=[f"edit {path}"]) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"{path} is not TOML", why=str(error), fix=[f"edit {path}"]
        ) from None


def _check(path: Path, key: str, value: object, base: Theme) -> None:
    if key not in COLOURS:
        near = get_close_matches(key, COLOURS, n=1)
        raise UsageError(
            f"{path}: a theme has no {key}",
            why="it has dark, " + ", ".join(COLOURS),
            fix=[f'edit {path}: {name} = "{getattr(base, name)}"' for name in near],
        )
    if not isinstance(value, str) or not _COLOUR.fullmatch(value):
        raise UsageError(
            f"{path}: {key} is {value!r}",
            why="a colour is # and six hexadecimal digits, in quotes",
            fix=[f'edit {path}: {key} = "{getattr(base, key)}"'],
        )
