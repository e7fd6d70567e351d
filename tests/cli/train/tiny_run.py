# SPDX-License-Identifier: Apache-2.0
"""A training that takes seconds: its options, questions and files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

from commandline import LIMIT

LETTERS = "abcdefghijklmnopqrstuvwxyz"


SMALL = (
    *("--layers", "2", "--features", "0,2,3", "--window", "64"),
    *("--conv-group", "8", "--rank", "8", "--candidates", "6"),
)
"""A drafter that suits the tiny target."""


SHORT = ("--held-out", "0.3", "--eval-prompts", "6", "--eval-tokens", "16")


FAST = ("--sequences", "2", "--anchors", "4", "--log-every", "1", *SHORT)


STEPS = ("--steps", "30", "--checkpoint-every", "7")


def write_questions(path: Path, count: int) -> Path:
    """Prompts of three letters, no two alike."""
    words = (
        LETTERS[i % 26] + LETTERS[i // 26] + LETTERS[7 * i % 26] for i in range(count)
    )
    path.write_text("".join(json.dumps({"prompt": word}) + "\n" for word in words))
    return path


def wait_for(process: Popen[bytes], condition: Callable[[], bool]) -> None:
    """Until something is true of a process's files."""
    until = time.monotonic() + LIMIT
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.005)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
