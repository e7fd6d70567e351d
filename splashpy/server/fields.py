# SPDX-License-Identifier: Apache-2.0
"""Reading a request's body: liberal with what is not known, exact with what is.

A field that is ``null`` is absent. A known field of the wrong type or with an
impossible value is an error that names its place. What nobody asked for is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from splashpy.server.errors import ApiError

_LARGEST_BITS = 64


class Fields:
    """The fields of one JSON object.

    Args:
        data: the object.
        path: where it stands in the body; empty for the body itself.
    """

    def __init__(self, data: Mapping[str, Any], path: str = "") -> None:
        self._data = data
        self._path = path
        self._read: set[str] = set()

    @property
    def unread(self) -> set[str]:
        """Names of fields nobody has asked for."""
        return set(self._data) - self._read

    def where(self, name: str) -> str:
        """The place of a field, as errors name it."""
        return f"{self._path}.{name}" if self._path else name

    def raw(self, name: str) -> Any:
        """The value of any type; None where it is absent or null."""
        self._read.add(name)
        return self._data.get(name)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.raw(name) is not None

    def ignore(self, *names: str) -> None:
        """Fields that are known and change nothing here."""
        self._read.update(names)

    def text(self, name: str, default: str = "") -> str:
        """A string."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, "a string", value)
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A boolean."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return value

    def integer(
        self, name: str, low: int | None = None, high: int | None = None
    ) -> int | None:
        """An integer within the bounds; ``8.0`` is one, ``true`` is not."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(name, "an integer", value)
        if value.bit_length() > _LARGEST_BITS:
            raise self.wrong(name, f"an integer of {_LARGEST_BITS} bits", value)
        if (low is not None and value < low) or (high is not None and value > high):
            raise self.wrong(name, _bounds(low, high), value)
        return value

    def number(
        self, name: str, low: float | None = None, high: float | None = None
    ) -> float | None:
        """A finite number within the bounds."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, "a number", value)
        if (low is not None and value < low) or (high is not None and value > high):
            raise self.wrong(name, _bounds(low, high), value)
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        if not math.isfinite(found):
            raise self.wrong(name, "a finite number", value)
        return found

    def items(self, name: str) -> list[Any]:
        """A list; empty where it is absent."""
        value = self.raw(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(name, "a list", value)
        return value

    def object(self, name: str) -> Fields:
        """An object; empty where it is absent."""
        value = self.raw(name)
        if value is None:
            return Fields({}, self.where(name))
        if not isinstance(value, Mapping):
            raise self.wrong(name, "an object", value)
        return Fields(value, self.where(name))

    def mapping(self, name: str) -> dict[str, Any]:
        """An object as it is; empty where it is absent."""
        return dict(self.object(name)._data)

    def objects(self, name: str) -> Iterator[Fields]:
        """The objects of a list."""
        for number, item in enumerate(self.items(name)):
            place = f"{self.where(name)}[{number}]"
            if not isinstance(item, Mapping):
                raise ApiError(
                    "invalid_value", f"{place} must be an object", param=place
                )
            yield Fields(item, place)

    def strings(self, name: str, most: int) -> tuple[str, ...]:
        """A string, or a list of at most ``most`` strings; empty ones are dropped."""
        value = self.raw(name)
        if isinstance(value, str):
            value = [value]
        for item in value if isinstance(value, list) else ():
            if not isinstance(item, str):
                raise self.wrong(name, "a string or a list of strings", value)
        found = [] if value is None else value
        if not isinstance(found, list):
            raise self.wrong(name, "a string or a list of strings", value)
        kept = tuple(item for item in found if item)
        if len(kept) > most:
            raise self.wrong(name, f"at most {most} strings", f"{len(kept)} strings")
        return kept

    def one_of(self, name: str, *choices: str) -> str:
        """One of some strings; empty where it is absent."""
        value = self.text(name)
        if value and value not in choices:
            raise self.wrong(name, f"one of {', '.join(choices)}", value)
        return value

    def wrong(self, name: str, allowed: str, value: Any) -> ApiError:
        """The error that says what this field may be."""
        place = self.where(name)
        shown = repr(value) if len(repr(value)) < 60 else type(value).__name__
        return ApiError(
            "invalid_value", f"{place} must be {allowed}, not {shown}", param=place
        )

    def __contains__(self, name: str) -> bool:
        return name in self._data


def _bounds(low: float | None, high: float | None) -> str:
    if low is None:
        return f"at most {high}"
    return f"{low} or more" if high is None else f"{low} to {high}"
