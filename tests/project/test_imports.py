# SPDX-License-Identifier: Apache-2.0
"""What ``splashpy --help`` may cost."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

HEAVY = (
    "mlx",
    "mlx_lm",
    "numpy",
    "transformers",
    "tokenizers",
    "huggingface_hub",
    "textual",
    "rich",
    "sqlite3",
    "asyncio",
    "pydantic",
    "httpx",
)

LOADED_AFTER = """
import json, sys
from splashpy.cli import main
main(sys.argv[1:])
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""

TIMES_BARE_PYTHON = 5


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--help",),
        ("run", "--help"),
        ("chat", "--help"),
        ("train", "--help"),
        ("train", "data", "--help"),
        ("help", "env"),
    ],
    ids=" ".join,
)
def test_help_imports_nothing_heavy(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED_AFTER, *words],
        capture_output=True,
        check=True,
    )
    loaded = json.loads(done.stdout.splitlines()[-1])

    assert "splashpy" in loaded
    assert not set(loaded) & set(HEAVY)


def test_help_takes_at_most_five_times_as_long_as_bare_python() -> None:
    commands = {
        "bare": [sys.executable, "-c", "pass"],
        "help": [sys.executable, "-m", "splashpy", "--help"],
    }
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(9):  # interleaved, so that a busy moment hits both
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            best[name] = min(best[name], time.perf_counter() - start)

    assert best["help"] <= TIMES_BARE_PYTHON * best["bare"]
