# SPDX-License-Identifier: Apache-2.0
"""Read typed values out of a JSON or TOML object, naming file and key when wrong.

JSON has one number type and Python's ``bool`` is an ``int``; here ``16.0``, ``true``
and ``"16"`` are not integers. A key that is absent and a key that is ``null`` are
the same thing.
"""

from __future__ import annotations

import json
import math
import os
import stat
import sys
from pathlib import Path
from typing import Any

from splashpy.errors import IntegrityError, ModelKindError

_LARGEST_JSON = 64 << 20  # tokenizer.json of a 250k vocabulary is 20 MB
_MOST_DIGITS = 40  # published files have lengths of 31 digits that mean "no limit"


class Fields:
    """One object of a file, read key by key.

    Every method takes the key and raises ``ModelKindError`` naming the file, the
    dotted key and the value when the type is wrong, or when the key is missing and
    the method has no ``default``.
    """

    def __init__(self, data: Any, file: str, prefix: str = ""):
        """Wrap ``data``, found in ``file`` under the dotted key ``prefix``."""
        if not isinstance(data, dict):
            raise ModelKindError(f"{file}: {prefix or 'content'} must be an object")
        self.data: dict[str, Any] = data
        self.file = file
        self.prefix = prefix
        self._seen: set[str] = set()

    def text(self, key: str, *, default: str | None = None) -> str:
        """A string; an empty one only as the default."""
        value = self._get(key, default)
        if not isinstance(value, str) or (not value and default is None):
            raise self._wrong(key, "a non-empty string", value)
        return value

    def integer(self, key: str, *, default: int | None = None, low: int = 0) -> int:
        """An integer of at least ``low``."""
        value = self._get(key, default)
        if type(value) is not int or value < low:
            raise self._wrong(key, f"an integer of at least {low}", value)
        return value

    def number(self, key: str) -> float | None:
        """A finite number, or None when absent."""
        value = self._optional(key)
        if value is None:
            return None
        numeric = type(value) in (int, float)
        if not numeric or not abs(value) <= sys.float_info.max:  # as NaN is not
            raise self._wrong(key, "a finite number", value)
        return float(value)

    def boolean(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self._get(key, default)
        if type(value) is not bool:
            raise self._wrong(key, "true or false", value)
        return value

    def choice(self, key: str, allowed: tuple[str, ...], *, default: str = "") -> str:
        """One of a few strings."""
        value = self._get(key, default or None)
        if value not in allowed:
            raise self._wrong(key, f"one of {', '.join(allowed)}", value)
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of integers >= 0; empty when absent."""
        value = self._listed(key)
        if any(type(item) is not int or item < 0 for item in value):
            raise self._wrong(key, "a list of integers of at least 0", value)
        return tuple(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty when absent."""
        value = self._listed(key)
        if any(not isinstance(item, str) for item in value):
            raise self._wrong(key, "a list of strings", value)
        return tuple(value)

    def object(self, key: str) -> Fields:
        """A nested object."""
        return Fields(self._get(key, None), self.file, self._dotted(key))

    def optional_object(self, key: str) -> Fields | None:
        """A nested object, or None when absent."""
        value = self._optional(key)
        return None if value is None else Fields(value, self.file, self._dotted(key))

    def objects(self, key: str) -> list[Fields]:
        """A list of objects; empty when absent."""
        return [
            Fields(item, self.file, f"{self._dotted(key)}[{index}]")
            for index, item in enumerate(self._listed(key))
        ]

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self._optional(key) is not None

    def refuse_others(self) -> None:
        """Raise for a key no method has asked for, naming it."""
        others = sorted(set(self.data) - self._seen)
        if others:
            raise ModelKindError(
                f"{self.file}: unknown key {self._dotted(others[0])}",
                why=f"known keys here: {', '.join(sorted(self._seen))}",
            )

    def _listed(self, key: str) -> list[Any]:
        value = self._optional(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._wrong(key, "a list", value)
        return value

    def _optional(self, key: str) -> Any:
        self._seen.add(key)
        return self.data.get(key)

    def _get(self, key: str, default: Any) -> Any:
        value = self._optional(key)
        if value is not None:
            return value
        if default is None:
            raise ModelKindError(f"{self.file}: key {self._dotted(key)} is missing")
        return default

    def _dotted(self, key: str) -> str:
        return f"{self.prefix}.{key}" if self.prefix else key

    def _wrong(self, key: str, wanted: str, value: Any) -> ModelKindError:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        return ModelKindError(
            f"{self.file}: {self._dotted(key)} must be {wanted}, is {shown}"
        )


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ModelKindError: the file cannot be read, or it holds no object.
        IntegrityError: it is not JSON; an interrupted download leaves such files.
    """
    try:
        data = json.loads(_content(path), parse_int=_integer)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelKindError(f"{path}: cannot be read: {reason}") from None
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{path}: not JSON", why=str(error)) from None
    if not isinstance(data, dict):
        raise ModelKindError(f"{path}: must hold a JSON object")
    return data


def _content(path: Path) -> str:
    """What is in a regular file; a pipe or a device might never end."""

    def opened(name: str, how: int) -> int:
        return os.open(name, how | os.O_NONBLOCK)  # waits for no writer of a pipe

    with open(path, "rb", opener=opened) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ModelKindError(f"{path}: not a regular file")
        if found.st_size > _LARGEST_JSON:
            raise ModelKindError(f"{path}: larger than {_LARGEST_JSON} bytes")
        return file.read(found.st_size).decode()


def _integer(digits: str) -> int | float:
    """A number nobody can mean is infinite, so that no arithmetic overflows later."""
    return int(digits) if len(digits) <= _MOST_DIGITS else math.inf
