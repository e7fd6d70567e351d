# SPDX-License-Identifier: Apache-2.0
"""``requests.jsonl``: what was measured, a line at a time, and how a run goes on.

The first line holds the settings. A run with the same settings goes on after the last
question that was answered by every arm; with others it is refused, since figures that
were made differently do not belong together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splashpy.bench.leg import Leg
from splashpy.errors import UsageError

SCHEMA = "splashpy.bench.requests/1"
FILE = "requests.jsonl"


@dataclass(slots=True)
class RequestLog:
    """The file of one run.

    Attributes:
        path: where it is.
        settings: of the run.
        legs: everything it holds, in order.
    """

    path: Path
    settings: Mapping[str, Any]
    legs: list[Leg]

    @classmethod
    def open(cls, directory: Path, settings: Mapping[str, Any]) -> RequestLog:
        """Begin a run in a directory, or go on with one.

        Raises:
            UsageError: the directory holds a run with other settings, or the file is
                of another program.
            OSError: it cannot be written.
        """
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / FILE
        legs = _read(path, settings) if path.exists() else []
        log = cls(path, settings, legs)
        log._rewrite()
        return log

    def add(self, legs: Sequence[Leg]) -> None:
        """Append the legs of one question; they are on disk when this returns."""
        self.legs += legs
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(_line(leg.fields()) for leg in legs)

    def _rewrite(self) -> None:
        """Leave out what a killed run left half done."""
        lines = [_line({"schema": SCHEMA, "settings": self.settings})]
        lines += [_line(leg.fields()) for leg in self.legs]
        write_whole(self.path, "".join(lines))


def write_whole(path: Path, text: str) -> None:
    """Replace a file by one with this text; at no time is half of it there."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _line(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False) + "\n"


def _read(path: Path, settings: Mapping[str, Any]) -> list[Leg]:
    head, *lines = path.read_text(encoding="utf-8", errors="replace").splitlines() or [
        ""
    ]
    begun = _object(head)
    if begun is None or begun.get("schema") != SCHEMA:
        raise UsageError(
            f"{path} is not a record of splashpy bench",
            fix=["--out another directory"],
        )
    differing = _differing(begun.get("settings", {}), settings)
    if differing:
        raise UsageError(
            f"{path.parent} holds a run with other settings",
            why=f"{', '.join(differing)} differ",
            fix=["--out another directory", f"rm -r {path.parent}"],
        )
    return _whole(lines, settings)


def _differing(begun: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    # As JSON, where a tuple and a list are the same.
    ours = json.loads(json.dumps(asked))
    return [name for name in {**begun, **ours} if begun.get(name) != ours.get(name)]


def _whole(lines: list[str], settings: Mapping[str, Any]) -> list[Leg]:
    """The legs of questions that every arm answered; a cut line ends the file."""
    legs: list[Leg] = []
    for line in lines:
        fields = _object(line)
        if fields is None:
            break
        try:
            legs.append(Leg.from_fields(fields))
        except (TypeError, ValueError):
            break
    arms: dict[tuple[str, str, int], set[str]] = {}
    for leg in legs:
        arms.setdefault((leg.suite, leg.prompt, leg.trial), set()).add(leg.arm)
    wanted = set(settings["arms"])
    return [leg for leg in legs if arms[leg.suite, leg.prompt, leg.trial] == wanted]


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
