# SPDX-License-Identifier: Apache-2.0
"""Typed access to the metadata of a GGUF file."""

from __future__ import annotations

import math
from typing import Any

from splashpy.errors import ModelKindError


class Metadata:
    """The key-value pairs of one file.

    Every method raises ``ModelKindError`` naming the file and the key when the value
    is absent (and there is no default) or of another kind.
    """

    def __init__(self, raw: dict[str, Any], file: str):
        """Wrap ``raw``; ``file`` is how messages call it."""
        self._raw = raw
        self.file = file

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return key in self._raw

    def text(self, key: str, *, default: str | None = None) -> str:
        """A string."""
        value = self._raw.get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string")
        return value

    def integer(self, key: str, *, default: int | None = None, low: int = 0) -> int:
        """An integer of at least ``low``."""
        value = self._raw.get(key, default)
        if type(value) is not int or value < low:
            raise self._wrong(key, f"an integer of at least {low}")
        return value

    def number(self, key: str, *, default: float | None = None) -> float:
        """A number; float32 values are shortened to the digits they stand for."""
        value = self._raw.get(key, default)
        if type(value) not in (int, float) or not math.isfinite(value):
            raise self._wrong(key, "a finite number")
        return float(f"{value:.7g}")

    def boolean(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self._raw.get(key, default)
        if type(value) is not bool:
            raise self._wrong(key, "true or false")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of strings."""
        value = self._raw.get(key)
        if not isinstance(value, list) or not all(isinstance(x, str) for x in value):
            raise self._wrong(key, "a list of strings")
        return value

    def integers(self, key: str) -> list[int]:
        """A list of integers."""
        value = self._raw.get(key)
        if not isinstance(value, list) or not all(type(x) is int for x in value):
            raise self._wrong(key, "a list of integers")
        return value

    def booleans(self, key: str) -> list[bool]:
        """A list of true and false."""
        value = self._raw.get(key)
        if not isinstance(value, list) or not all(type(x) is bool for x in value):
            raise self._wrong(key, "a list of true and false")
        return value

    def count(self, key: str) -> int:
        """Length of a list of strings."""
        return len(self.texts(key))

    def _wrong(self, key: str, wanted: str) -> ModelKindError:
        state = "is not" if key in self._raw else "is missing; it must be"
        return ModelKindError(f"{self.file}: metadata {key} {state} {wanted}")
