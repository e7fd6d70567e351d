# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

from splashpy.package.progress import never, silent
from splashpy.packing.build_lock import locked
from splashpy.protocol import LoadProgress


def test_a_builder_that_waited_holds_the_lock_the_next_one_sees(tmp_path: Path) -> None:
    """The first holder deletes the file when its package is complete."""
    path = tmp_path / ".package.lock"
    waiting, inside, done = (threading.Event() for _ in range(3))

    def note(step: LoadProgress) -> None:
        assert step.item.startswith("waiting for process")
        waiting.set()

    def second() -> None:
        with locked(path, note, never):
            inside.set()
            done.wait()

    thread = threading.Thread(target=second)
    with locked(path, silent, never):
        thread.start()
        waiting.wait()
        path.unlink()
    inside.wait()
    try:
        with path.open("a+") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        done.set()
        thread.join()
