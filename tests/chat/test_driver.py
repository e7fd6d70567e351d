# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from splashpy.chat.driver import ExitEvent


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_a_reader_sleeps_until_there_is_something_to_read_or_it_is_to_end(
    pipe: tuple[int, int],
) -> None:
    event = ExitEvent(pipe[0])
    read: list[bytes] = []
    typed = threading.Event()

    def reader() -> None:
        while not event.is_set():
            if not read:
                read.append(os.read(pipe[0], 1))
            typed.set()

    thread = threading.Thread(target=reader)
    thread.start()
    assert not event.is_set(), "only who reads sleeps"
    assert not typed.is_set()
    os.write(pipe[1], b"a")
    assert typed.wait(30)
    event.set()
    thread.join(30)
    assert not thread.is_alive()
    assert read == [b"a"]
    event.close()


def test_a_reader_that_nobody_types_for_does_not_look_once(
    pipe: tuple[int, int],
) -> None:
    event = ExitEvent(pipe[0])
    looks: list[int] = []

    def reader() -> None:
        while not event.is_set():
            looks.append(1)

    for _ in range(2):  # ended, and begun again after a suspension
        thread = threading.Thread(target=reader)
        thread.start()
        event.set()
        thread.join(30)
        assert not thread.is_alive()
        event.clear()
    assert looks == []
    event.close()
