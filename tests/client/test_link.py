# SPDX-License-Identifier: Apache-2.0
"""The threads between a chat and its engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from splashpy.client.client import EngineClient
from splashpy.client.link import PING_SECONDS, STUCK_SECONDS, EngineLink, _Watch
from splashpy.client.replay import ReplayClient, Timed
from splashpy.errors import EngineDiedError, InternalError, ModelMissingError
from splashpy.protocol import (
    Cancel,
    Command,
    EngineHello,
    Failure,
    Generate,
    Load,
    Memory,
    Ping,
    Pong,
    Ready,
)

PATIENCE = 60  # seconds after which what a test waits for has not happened
HELLO = EngineHello(proto=1, version="1", pid=1)
READY = Ready(model="m", context_max=100, block_size=4)


class Waker:
    """Counts wake-ups and lets a test wait for one."""

    def __init__(self) -> None:
        self.count = 0
        self._woken = threading.Event()

    def __call__(self) -> None:
        self.count += 1
        self._woken.set()

    def wait(self) -> None:
        assert self._woken.wait(PATIENCE)
        self._woken.clear()


@pytest.fixture
def waker() -> Waker:
    return Waker()


def opened(
    connect: Callable[[], EngineClient], waker: Waker, **options: Any
) -> EngineLink:
    link = EngineLink(connect, Load(model="m"), waker, **options)
    link.start()
    return link


def take(link: EngineLink, waker: Waker, count: int) -> list:
    taken: list = []
    while len(taken) < count:
        waker.wait()
        taken += [arrived for _, arrived in link.take()]
    return taken


def test_it_says_hello_asks_for_the_model_and_collects(waker: Waker) -> None:
    link = opened(lambda: ReplayClient([Timed(0, HELLO), Timed(0, READY)]), waker)

    assert take(link, waker, 2) == [HELLO, READY]
    assert link.take() == []
    link.close()


def test_many_events_wake_the_interface_once(waker: Waker) -> None:
    events = [Timed(0, Memory(active=n)) for n in range(500)]
    asleep = threading.Event()

    def wake() -> None:
        waker()
        asleep.set()

    client = ReplayClient([Timed(0, HELLO), *events, Timed(0, READY)])
    link = EngineLink(lambda: client, Load(model="m"), wake)
    link.start()
    assert asleep.wait(PATIENCE)
    while len(link._arrived) < 502:
        assert link._arrived
    link.close()

    assert waker.count == 1
    assert len(link.take()) == 502


def test_what_goes_wrong_while_connecting_arrives(waker: Waker) -> None:
    error = ModelMissingError("not installed")

    def connect() -> EngineClient:
        raise error

    assert take(opened(connect, waker), waker, 1) == [error]


def test_a_bug_in_a_client_arrives_as_an_internal_error(waker: Waker) -> None:
    def connect() -> EngineClient:
        raise ZeroDivisionError("oops")

    (error,) = take(opened(connect, waker), waker, 1)

    assert isinstance(error, InternalError)
    assert "oops" in str(error)


def test_the_death_of_the_engine_arrives_once(waker: Waker) -> None:
    death = EngineDiedError("killed")
    link = opened(lambda: ReplayClient([Timed(0, HELLO), Timed(0, death)]), waker)
    taken = take(link, waker, 1)
    if taken == [HELLO]:
        taken += take(link, waker, 1)
    link.send(Ping())

    assert taken == [HELLO, death]
    assert link.take() == []
    link.close()


def test_an_engine_that_does_not_read_keeps_nobody_waiting(waker: Waker) -> None:
    reading = threading.Event()

    class Deaf(ReplayClient):
        def send(self, command: Command) -> None:
            if isinstance(command, Generate):
                reading.wait(PATIENCE)
            super().send(command)

    client = Deaf([Timed(0, HELLO), Timed(0, READY)])
    link = opened(lambda: client, waker)
    take(link, waker, 2)

    link.send(Generate(id="a"))  # returns although the engine does not read

    assert not reading.is_set()
    reading.set()
    link.close()


def test_a_new_link_ends_the_engine_of_the_old_one_first(waker: Waker) -> None:
    order = []

    class Ending(ReplayClient):
        def close(self, *, now: bool = False) -> None:
            order.append(f"old ended, now={now}")
            super().close(now=now)

    old = opened(lambda: Ending([Timed(0, HELLO), Timed(0, READY)]), waker)
    take(old, waker, 2)

    def connect() -> EngineClient:
        order.append("new started")
        return ReplayClient([Timed(0, HELLO), Timed(0, READY)])

    new = opened(connect, waker, previous=old)
    take(new, waker, 2)
    new.close()

    assert order == ["old ended, now=True", "new started"]


def test_a_closed_link_says_nothing_more(waker: Waker) -> None:
    client = ReplayClient([Timed(0, HELLO), Timed(0, READY)])
    link = opened(lambda: client, waker)
    take(link, waker, 2)

    link.close()

    assert link.take() == []


def test_an_engine_is_watched_from_its_first_word_on() -> None:
    watch = _Watch(0.0)
    assert not watch.ping_due(100.0)
    assert not watch.fell_silent(100.0)

    watch.heard(HELLO, 100.0)

    assert watch.ping_due(100.0)
    assert not watch.ping_due(100.0 + PING_SECONDS / 2)
    assert watch.ping_due(100.0 + PING_SECONDS)


def test_silence_is_reported_once_until_the_engine_speaks_again() -> None:
    watch = _Watch(0.0)
    watch.heard(HELLO, 0.0)

    assert not watch.fell_silent(STUCK_SECONDS - 0.1)
    assert watch.fell_silent(STUCK_SECONDS)
    assert not watch.fell_silent(STUCK_SECONDS + 5)
    assert watch.stuck
    watch.heard(Pong(), STUCK_SECONDS + 6)
    assert not watch.stuck
    assert watch.fell_silent(2 * STUCK_SECONDS + 6)


def test_of_an_engine_nothing_is_wanted_of_silence_means_nothing() -> None:
    watch = _Watch(0.0)
    watch.heard(HELLO, 0.0)
    assert watch.idle
    watch.asked(Load(model="m"), 0.0)
    assert not watch.idle
    watch.heard(READY, 1.0)
    assert watch.idle

    asked_at = 1.0 + 5 * STUCK_SECONDS
    watch.asked(Cancel(id="a"), asked_at)
    assert watch.idle
    watch.asked(Generate(id="a", prompt="x"), asked_at)
    assert not watch.idle
    assert not watch.fell_silent(asked_at + 1), "silence before the question is none"
    assert watch.fell_silent(asked_at + STUCK_SECONDS)
    watch.heard(Failure(id="a", code="E-ENGINE", message="it failed"), asked_at + 20)
    assert watch.idle


def test_an_engine_that_says_its_model_hangs_is_stuck_until_it_says_otherwise() -> None:
    watch = _Watch(0.0)
    watch.heard(EngineHello(proto=1, version="1", pid=7), 1.0)
    hanging, well = Pong(stuck="a pass has taken 75 seconds"), Pong()
    watch.heard(hanging, 3.0)
    assert watch.fell_silent(3.0) == "a pass has taken 75 seconds"
    watch.heard(hanging, 5.0)
    assert not watch.fell_silent(5.0), "it is told once"
    assert watch.stuck
    assert not watch.tells(hanging)
    assert watch.tells(well)
    watch.heard(well, 7.0)
    assert not watch.stuck
    assert not watch.fell_silent(7.0)
