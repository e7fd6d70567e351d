# SPDX-License-Identifier: Apache-2.0
"""The whole program with the real demo model, as a person runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LIMIT = 300  # seconds; one answer takes a few


@pytest.fixture(scope="session")
def copied(demo: Path) -> Callable[[Path], Path]:
    """Copies the demo package into a directory, by links where it can."""

    def copy(directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        return shutil.copytree(demo, directory / demo.name, copy_function=_link)

    return copy


@pytest.fixture(scope="session")
def home(
    copied: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A SPLASHPY_HOME in which the demo is installed."""
    home = tmp_path_factory.mktemp("demo-home")
    copied(home / "data" / "packages")
    return home


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    """What a person's shell has: the fast BLAS where there is one."""
    kept = {k: v for k, v in os.environ.items() if k != "SPLASHPY_BLAS"}
    return {**kept, "SPLASHPY_HOME": str(home)}


@pytest.fixture
def splashpy(
    environment: dict[str, str],
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the program: ``splashpy("run", "demo", ..., check=True)``."""

    def run(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "splashpy", *words],
            env={**environment, **options.pop("variables", {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=options.pop("check", False),
        )

    return run


@pytest.fixture
def answer(splashpy: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """The JSON document of ``splashpy run demo``."""

    def ask(*words: str, **options: Any) -> dict[str, Any]:
        done = splashpy("run", "demo", "--json", *words, check=True, **options)
        return json.loads(done.stdout)

    return ask
