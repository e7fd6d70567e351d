# SPDX-License-Identifier: Apache-2.0
"""Verdicts on kernels, kept for the next start.

They hold for one machine: its device, its system, its mlx and the text of the kernels.
The file is one JSON object of machines; whatever is wrong with it, the contests are
simply run again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from splashpy.kernels import gate, metal
from splashpy.kernels.contest import Contest, Verdict

_FORMAT = 1


def machine() -> str:
    """What verdicts hold for, as one line."""
    info = mx.device_info()
    text = "".join(f"{name}\0{body}\0" for name, body in metal.sources().items())
    parts = (
        info.get("device_name", "CPU"),
        info.get("architecture", platform.machine()),
        platform.mac_ver()[0] or platform.system(),
        f"mlx {version('mlx')}",
        hashlib.sha256(text.encode()).hexdigest()[:16],
    )
    return " | ".join(map(str, parts))


def read(path: Path, of: str) -> dict[tuple[str, gate.Shape], Verdict]:
    """The verdicts kept for a machine, by operation and key; maybe none."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        rows: list[dict[str, Any]] = kept["machines"][of]
        if kept["format"] != _FORMAT:
            return {}
        found = [Verdict(**{**row, "key": tuple(row["key"])}) for row in rows]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {(verdict.operation, verdict.key): verdict for verdict in found}


def write(path: Path, of: str, verdicts: Sequence[Verdict]) -> None:
    """Keep the verdicts of a machine; silently not, where that is impossible."""
    kept: dict[str, Any] = {"format": _FORMAT, "machines": {}}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] == _FORMAT:
            kept["machines"] = dict(found["machines"])
    kept["machines"][of] = [asdict(verdict) for verdict in verdicts]
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(kept, file, indent=1)
        Path(name).replace(path)


def missing(
    contests: Sequence[Contest], known: dict[tuple[str, gate.Shape], Verdict]
) -> list[Contest]:
    """The contests without a verdict, each shape once."""
    found: dict[tuple[str, gate.Shape], Contest] = {}
    for contest in contests:
        key = (contest.operation, contest.key)
        if key not in known:
            found.setdefault(key, contest)
    return list(found.values())
