# SPDX-License-Identifier: Apache-2.0
"""``config.toml``: a few wishes of a person, all optional.

Limits of the engine are not in it, so that a command line means the same on every
machine. An unknown key is reported with the nearest known one and otherwise ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splashpy.chat.keys import ACTIONS
from splashpy.cli.commands import nearest
from splashpy.errors import PermissionDeniedError, UsageError

KEYS: dict[str, dict[str, tuple[type, str]]] = {
    "defaults": {"model": (str, "model to use when none is named")},
    "chat": {
        "theme": (str, "as --theme"),
        "mouse": (bool, "false: as --no-mouse"),
        "enter": (str, "send, or newline: enter begins a line and ctrl+j sends"),
        "emoji": (str, "picture, or text: spelled out, where widths disagree"),
        "motion": (bool, "false: nothing turns or slides"),
    },
    "keys": {
        row.id: (str, f"{row.help} [{row.keys}]".replace("\\", "")) for row in ACTIONS
    },
}
"""Tables, their keys, the type of the value, and what it does."""

WORDS = {"chat.enter": ("send", "newline"), "chat.emoji": ("picture", "text")}
"""Keys that know only some words."""

KINDS = {str: "text", bool: "true or false"}
"""What a person calls the type of a value."""

_EDIT = "splashpy config edit"


@dataclass(frozen=True, slots=True)
class Config:
    """What ``config.toml`` says.

    Attributes:
        values: by ``table.key``; only known keys with values of the right type.
        warnings: one sentence for each unknown key.
    """

    values: dict[str, Any]
    warnings: tuple[str, ...] = ()

    def table(self, name: str) -> dict[str, Any]:
        """The keys of one table that the file sets, and their values."""
        start = f"{name}."
        return {
            key.removeprefix(start): value
            for key, value in self.values.items()
            if key.startswith(start)
        }

    def get(self, key: str) -> Any:
        """The value of ``table.key``; None when the file does not say."""
        return self.values.get(key)


def read(path: Path) -> Config:
    """Read the file; a missing one says nothing.

    Raises:
        UsageError: not TOML, or a value of the wrong type.
        PermissionDeniedError: the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Config({})
    except OSError as error:
        raise PermissionDeniedError(
            f"{path} cannot be read", why=error.strerror or ""
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text", fix=[_EDIT]) from None
    return check(text, path)


def check(text: str, path: Path) -> Config:
    """What a text would say as the file.

    Args:
        text: to be read.
        path: of the file, for what is told about it.

    Raises:
        UsageError: not TOML, or a value of the wrong type.
    """
    return _check(_parse(text, path), path)


def _parse(text: str, path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML", why=str(error), fix=[_EDIT]) from None


def _check(data: dict[str, Any], path: Path) -> Config:
    known: dict[str, Any] = {}
    warnings: list[str] = []
    for key, value in _flat(data):
        table, _, name = key.partition(".")
        row = KEYS.get(table, {}).get(name)
        if row is None:
            warnings.append(f"{path}: unknown key {key}{_hint(key)}")
        elif type(value) is not row[0]:
            raise UsageError(
                f"{path}: {key} is {value!r}",
                why=f"it must be {KINDS[row[0]]}",
                fix=[_EDIT],
            )
        else:
            check_word(key, value, path)
            known[key] = value
    return Config(known, tuple(warnings))


def check_word(key: str, value: object, path: Path) -> None:
    """Refuse a value that is none of the words of its key.

    Raises:
        UsageError: names the words.
    """
    words = WORDS.get(key, ())
    if words and value not in words:
        raise UsageError(
            f"{path}: {key} is {value!r}", why=f"it must be {' or '.join(words)}"
        )


def _flat(data: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for table, content in data.items():
        if isinstance(content, dict):
            yield from ((f"{table}.{name}", value) for name, value in content.items())
        else:
            yield table, content


def _hint(key: str) -> str:
    names = [f"{table}.{name}" for table, rows in KEYS.items() for name in rows]
    near = nearest(key, names)
    return f", the nearest is {near[0]}" if near else ""
