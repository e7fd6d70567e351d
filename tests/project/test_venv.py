# SPDX-License-Identifier: Apache-2.0
"""The environment that every script prepares for itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
PATIENCE_SECONDS = 60
# Stands for the environment's Python: pip installs once it is let.
PYTHON = """#!/bin/sh
root=$(dirname "$0")/../..
[ "$1" = -m ] || exit 0
echo "$*" >> "$root/asked"
looks=0
while [ ! -e "$root/go" ] && [ $((looks += 1)) -lt 600 ]; do sleep 0.05; done
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    (tmp_path / "pyproject.toml").write_text("")
    return tmp_path


def prepare(root: Path) -> subprocess.Popen[str]:
    script = f'set -eu; root="{root}"; . "{SCRIPTS}/venv"; prepare_venv splashpy'
    return subprocess.Popen(["sh", "-c", script], stderr=subprocess.PIPE, text=True)


def prepare_after(first: subprocess.Popen[str], root: Path) -> subprocess.Popen[str]:
    assert said(first).startswith("installing splashpy")
    return prepare(root)


def said(script: subprocess.Popen[str]) -> str:
    assert script.stderr is not None
    return script.stderr.readline()


def test_a_second_script_waits_for_the_first_and_finds_everything_there(
    root: Path,
) -> None:
    with prepare(root) as first, prepare_after(first, root) as second:
        assert said(second).startswith(f"waiting for process {first.pid} ")
        (root / "go").touch()
        assert first.wait(PATIENCE_SECONDS) == second.wait(PATIENCE_SECONDS) == 0
        assert said(second) == ""
    assert (root / "asked").read_text().count("pip install") == 2, "pip, then splashpy"
    assert not (root / ".venv.lock").is_symlink()


def test_the_lock_of_a_script_that_was_killed_holds_up_nobody(root: Path) -> None:
    killed = subprocess.Popen(["sh", "-c", "exit"])
    killed.wait(PATIENCE_SECONDS)
    (root / ".venv.lock").symlink_to(str(killed.pid))
    (root / "go").touch()
    with prepare(root) as script:
        assert script.wait(PATIENCE_SECONDS) == 0
    assert not (root / ".venv.lock").is_symlink()
