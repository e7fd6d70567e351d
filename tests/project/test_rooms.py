# SPDX-License-Identifier: Apache-2.0
"""The contract between the rooms, and habits every source file follows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path
    for folder in ("splashpy", "tests", "metal_kernels", "packages")
    for kind in ("*.py", "*.metal", "*.toml")
    for path in (ROOT / folder).rglob(kind)
)


def test_rooms_import_only_what_is_below_them() -> None:
    """The contract is in pyproject.toml; the message names file and line."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as c; c()",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[done.stdout.find("Broken contracts") :]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_source_file_names_its_licence_first(path: Path) -> None:
    first = path.read_text(encoding="utf-8").split("\n", 1)[0]

    assert "SPDX-License-Identifier: Apache-2.0" in first or not path.stat().st_size


def test_every_room_says_what_it_is_for() -> None:
    rooms = list((ROOT / "splashpy").glob("*/__init__.py"))
    assert len(rooms) > 10

    for room in rooms:
        docstring = room.read_text(encoding="utf-8").split('"""')[1]
        assert len(docstring.splitlines()) <= 10, room
