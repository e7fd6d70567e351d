# SPDX-License-Identifier: Apache-2.0
"""The latest lookups as lines of JSON, so that another process can explain them.

The file lies beside the cached prompts and quotes them: like them, only its owner may
read it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splashpy.cache.disk.directory import DIRECTORY_MODE
from splashpy.cache.disk.record import FILE_MODE

_KEPT = 100  # lines that stay when the file is shortened
_LARGEST_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class LookupFile:
    """The file of one cache.

    Attributes:
        root: directory of the cache.
    """

    root: Path

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.root / "lookups.jsonl"

    def read(self) -> list[dict[str, Any]]:
        """Every lookup that can be read, the latest last."""
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            with suppress(ValueError):
                row = json.loads(line)
                if isinstance(row, dict):
                    found.append(row)
        return found

    def append(self, about: dict[str, Any]) -> None:
        """Add a lookup; where nothing can be written it is lost."""
        with suppress(OSError):
            self.root.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            if self.path.exists() and self.path.stat().st_size > _LARGEST_BYTES:
                self._write(self.path.with_suffix(f".tmp-{os.getpid()}"))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self._lines(os.open(self.path, flags, FILE_MODE), [about])

    def _write(self, temporary: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self._lines(os.open(temporary, flags, FILE_MODE), self.read()[-_KEPT:])
        temporary.replace(self.path)

    def _lines(self, descriptor: int, rows: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        with open(descriptor, "wb") as file:
            file.write(text.encode("utf-8", errors="replace"))
