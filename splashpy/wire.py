# SPDX-License-Identifier: Apache-2.0
"""Commands and events as lines of JSON, and back.

A reader ignores fields and event types it does not know; a field of the wrong type is
an error that names it.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from functools import cache
from typing import Any, Literal, TypeVar

from splashpy.protocol import Command, Event, Piece

_COMMANDS = {kind.op: kind for kind in typing.get_args(Command)}
_EVENTS = {kind.ev: kind for kind in typing.get_args(Event)}


def to_json(message: Command | Event) -> dict[str, Any]:
    """The message as a JSON object, with its ``op`` or ``ev`` first."""
    tag = "op" if hasattr(message, "op") else "ev"
    return {tag: getattr(message, tag), **_plain(message)}


def to_line(message: Command | Event) -> bytes:
    """The message as one line of UTF-8 JSON, newline included."""
    text = json.dumps(to_json(message), ensure_ascii=False, separators=(",", ":"))
    # A lone surrogate cannot be UTF-8; the replacement keeps the line readable.
    return text.encode("utf-8", errors="replace") + b"\n"


def command_from_line(line: bytes | str) -> Command:
    """The command on a line.

    Raises:
        ValueError: not JSON, not a known command, or a field of the wrong type.
    """
    data = _object(line)
    kind = _COMMANDS.get(data.get("op"))
    if kind is None:
        raise ValueError(f"unknown command {data.get('op')!r}")
    return _build(kind, data)


def event_from_line(line: bytes | str) -> Event | None:
    """The event on a line; None for a type this version does not know.

    Raises:
        ValueError: not JSON, or a field of the wrong type.
    """
    data = _object(line)
    kind = _EVENTS.get(data.get("ev"))
    return None if kind is None else _build(kind, data)


_C = TypeVar("_C", bound=Command)


def check(command: _C) -> _C:
    """The same command, every field of the type it is declared with.

    Raises:
        ValueError: a field has another type; the message names it.
    """
    return _build(type(command), to_json(command))


def _object(line: bytes | str) -> dict[str, Any]:
    data = json.loads(line)
    if not isinstance(data, dict):
        raise ValueError(f"expected a JSON object, got {type(data).__name__}")
    return data


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {
            item.name: _plain(getattr(value, item.name))
            for item in dataclasses.fields(value)
        }
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


_T = TypeVar("_T")


def _build(kind: type[_T], data: dict[str, Any]) -> _T:
    hints = _hints(kind)
    values = {
        name: _convert(hints[name], data[name], f"{kind.__name__}.{name}")
        for name in hints
        if name in data
    }
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from None


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {item.name: hints[item.name] for item in dataclasses.fields(kind)}


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in typing.get_args(hint):
            return None
        (inner,) = [arm for arm in typing.get_args(hint) if arm is not type(None)]
        return _convert(inner, value, where)
    if origin is Literal:
        if value not in typing.get_args(hint):
            raise ValueError(
                f"{where} is {value!r}, not one of {typing.get_args(hint)}"
            )
        return value
    if origin is tuple:
        return _convert_tuple(typing.get_args(hint), value, where)
    if hint is Piece:
        text, piece_kind, channel = value
        return Piece(text, piece_kind, channel)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be an object, got {value!r}")
        return _build(typing.cast("type[Any]", hint), value)
    return _convert_scalar(origin or hint, value, where)


def _convert_tuple(arms: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where} must be a list, got {value!r}")
    if len(arms) == 2 and arms[1] is Ellipsis:
        return tuple(_convert(arms[0], item, where) for item in value)
    if len(arms) != len(value):
        raise ValueError(f"{where} needs {len(arms)} items, got {len(value)}")
    return tuple(
        _convert(arm, item, where) for arm, item in zip(arms, value, strict=True)
    )


def _convert_scalar(kind: type, value: Any, where: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    is_bool = isinstance(value, bool)
    if not isinstance(value, kind) or (is_bool and kind is not bool):
        raise ValueError(f"{where} must be {kind.__name__}, got {value!r}")
    return value
