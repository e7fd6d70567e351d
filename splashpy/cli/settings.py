# SPDX-License-Identifier: Apache-2.0
"""``splashpy config``: look at and change ``config.toml``."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from splashpy.cli import config
from splashpy.cli.commands import nearest
from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON
from splashpy.cli.page import Page, PageCommand
from splashpy.errors import PermissionDeniedError, UsageError

_WORDS = {"true": True, "false": False}


def settings(invocation: Invocation) -> int:
    """Show, read, set or edit the wishes in ``config.toml``.

    Raises:
        SplashError: no such action or key, or the file cannot be written.
    """
    action, *words = invocation.given["words"] or ["show"]
    if action not in _ACTIONS:
        near = nearest(action, list(_ACTIONS))
        raise UsageError(
            f"there is no config {action}",
            why="actions: " + ", ".join(_ACTIONS),
            fix=[f"splashpy config {name}" for name in near],
        )
    return _ACTIONS[action](invocation, words)


def _show(invocation: Invocation, words: list[str]) -> int:
    values = config.read(_file(invocation)).values
    if invocation.output.json:
        invocation.output.document("config", {"values": values})
        return 0
    for key, value in values.items():
        invocation.output.result(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    if not values:
        invocation.output.note(f"nothing is set in {_file(invocation)}")
    return 0


def _get(invocation: Invocation, words: list[str]) -> int:
    (key,) = _exactly(words, 1, "get KEY")
    _row(key)
    value = config.read(_file(invocation)).get(key)
    if invocation.output.json:
        invocation.output.document("config", {"values": {key: value}})
    elif value is not None:
        text = json.dumps(value) if isinstance(value, bool) else str(value)
        invocation.output.result(text)
    return 0 if value is not None else 1


def _set(invocation: Invocation, words: list[str]) -> int:
    key, text = _exactly(words, 2, "set KEY VALUE")
    kind, _ = _row(key)
    if kind is bool and text.lower() not in _WORDS:
        raise UsageError(f"{key} is {text!r}", why="it must be true or false")
    value = _WORDS[text.lower()] if kind is bool else text
    path = _file(invocation)
    config.check_word(key, value, path)
    try:
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        path.parent.mkdir(parents=True, exist_ok=True)
        new = with_value(old, key, value=value)
        _check(new, key, path)
        temporary = path.with_suffix(".toml.new")
        temporary.write_text(new, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise PermissionDeniedError(
            f"{path} cannot be written", why=error.strerror or ""
        ) from None
    if invocation.output.json:
        invocation.output.document("config", {"values": {key: value}})
    else:
        invocation.output.note(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    return 0


def _check(text: str, key: str, path: Path) -> None:
    """Refuse to write what could not be read, as where the table has another form."""
    try:
        config.check(text, path)
    except UsageError as error:
        raise UsageError(
            f"{key} cannot be set in {path}",
            why=error.why,
            fix=["splashpy config edit"],
        ) from None


def with_value(text: str, key: str, *, value: str | bool) -> str:
    """A TOML text in which a key has another value; everything else stays.

    Args:
        text: of the file.
        key: ``table.name``.
        value: to set.
    """
    table, _, name = key.partition(".")
    # What JSON writes for a text or a truth value, TOML reads.
    line = f"{name} = {json.dumps(value, ensure_ascii=False)}"
    lines = text.splitlines()
    heads = [i for i, row in enumerate(lines) if row.strip().startswith("[")]
    start = next((i for i in heads if _head(lines[i]) == table), None)
    if start is None:
        space = [""] if lines else []
        return "\n".join([*lines, *space, f"[{table}]", line]) + "\n"
    end = next((i for i in heads if i > start), len(lines))
    for index in range(start + 1, end):
        if re.match(rf"\s*{re.escape(name)}\s*=", lines[index]):
            lines[index] = line
            return "\n".join(lines) + "\n"
    lines.insert(start + 1, line)
    return "\n".join(lines) + "\n"


def _head(line: str) -> str:
    return line.partition("#")[0].strip().strip("[]").strip()


def _path(invocation: Invocation, words: list[str]) -> int:
    path = str(_file(invocation))
    if invocation.output.json:
        invocation.output.document("config", {"path": path})
    else:
        invocation.output.result(path)
    return 0


def _paths(invocation: Invocation, words: list[str]) -> int:
    places = {name: str(path) for name, path in asdict(invocation.paths).items()}
    if invocation.output.json:
        invocation.output.document("config", {"paths": places})
        return 0
    for name, path in places.items():
        invocation.output.result(f"{name:<7} {path}")
    return 0


def _edit(invocation: Invocation, words: list[str]) -> int:
    editor = invocation.environment.editor
    path = _file(invocation)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        code = subprocess.call([*shlex.split(editor), os.fspath(path)])
    except OSError as error:
        raise UsageError(
            f"the editor {editor!r} cannot be started",
            why=error.strerror or "",
            fix=["EDITOR=nano splashpy config edit"],
        ) from None
    edited = config.read(path)
    for warning in edited.warnings:
        invocation.output.warn(warning)
    if invocation.output.json:
        invocation.output.document("config", {"values": edited.values})
    return 0 if code == 0 else 1


def _file(invocation: Invocation) -> Path:
    return invocation.paths.config / "config.toml"


def _row(key: str) -> tuple[type, str]:
    table, _, name = key.partition(".")
    row = config.KEYS.get(table, {}).get(name)
    if row is None:
        keys = [f"{t}.{n}" for t, rows in config.KEYS.items() for n in rows]
        near = nearest(key, keys)
        raise UsageError(
            f"config.toml has no key {key}",
            fix=[f"splashpy config get {other}" for other in near]
            or ["splashpy help env"],
        )
    return row


def _exactly(words: list[str], count: int, usage: str) -> list[str]:
    if len(words) != count:
        raise UsageError(f"write splashpy config {usage}")
    return words


_ACTIONS: dict[str, Callable[[Invocation, list[str]], Any]] = {
    "show": _show,
    "get": _get,
    "set": _set,
    "edit": _edit,
    "path": _path,
    "paths": _paths,
}

CONFIG = PageCommand(
    "config",
    page=Page(
        usage="[show|get|set|edit|path|paths] [KEY] [VALUE]",
        summary="Look at and change config.toml.",
        examples=(
            ("splashpy config set chat.theme splash-light", "keep a choice"),
            ("splashpy config get defaults.model", "exit code 1 when it is not set"),
            ("splashpy config paths", "where splashpy keeps its files"),
        ),
        notes=(
            "splashpy help env lists the keys, splashpy help keys those of [keys].",
        ),
    ),
    arguments=(click.Argument(["words"], nargs=-1, metavar="[ACTION] [KEY] [VALUE]"),),
    options=COMMON,
    run=settings,
    lenient=True,
)
