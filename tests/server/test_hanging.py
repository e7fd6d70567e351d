# SPDX-License-Identifier: Apache-2.0
"""Engines that hang, and engines that die of their own kernels."""

from __future__ import annotations

import asyncio
import itertools
import queue
from collections.abc import Callable
from typing import Any

import pytest
from scripted_engine import Said, Script
from server_kit import Mortal, Running, until

from splashpy.client import link
from splashpy.client.client import EngineClient
from splashpy.errors import EngineDiedError
from splashpy.host import host as host_module
from splashpy.protocol import Command, EngineHello, Load, Ready
from splashpy.server import restarts
from splashpy.server.engine import Engine
from splashpy.server.restarts import EARLY_UNITS, SAFE_MODE, Restarts

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hi"}]}
WHY = "a pass of the model has taken 75 seconds"

Mortals = Callable[..., tuple[Running, list[Mortal]]]


def test_an_engine_that_hangs_is_ended_and_its_request_begins_anew(
    mortal: Mortals, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PING_SECONDS", 0.01)
    server, lives = mortal()
    script.answers = [
        Said(("</think>half", lambda: until(lambda: len(lives) == 2))),
        Said(("</think>whole<|im_end|>",)),
    ]
    request = server.begin("POST", CHAT, BODY)
    until(lambda: len(script.requests) == 1)

    once = itertools.chain([WHY], itertools.repeat(""))
    script.overdue = once.__next__

    response = request.getresponse()
    assert response.status == 200
    assert b"whole" in response.read()
    request.close()
    assert server.log[0] == (
        f"the engine does not answer: {WHY}; starting it again at once"
    )
    status = server.get("/status").json["engine"]
    assert (status["restarts"], status["replayed_requests"]) == (1, 1)
    assert status["safe_mode"] is False


def test_an_engine_that_dies_twice_right_after_its_start_goes_on_without_kernels(
    mortal: Mortals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "may_run", lambda: True)
    server, lives = mortal()
    for count in (2, 3):
        until(lambda: server.endpoint.engine.state == "ready")
        lives[-1].dead = True
        until(lambda: len(lives) == count)  # noqa: B023 - called at once

    assert server.post(CHAT, BODY).status == 200
    assert server.get("/status").json["engine"]["safe_mode"] is True
    assert server.log.count(SAFE_MODE) == 1
    assert server.endpoint.engine._load.options.kernels is False


class Fragile(EngineClient):
    """An engine that dies while it loads, unless it does without kernels."""

    def __init__(self, *, healed: bool = True) -> None:
        self.loads: list[bool] = []
        self._healed = healed
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def send(self, command: Command) -> None:
        if not isinstance(command, Load):
            return
        self.loads.append(command.options.kernels)
        self._events.put(EngineHello(proto=1, version="1", pid=7, kernels=True))
        if command.options.kernels or not self._healed:
            self._events.put(EngineDiedError("killed by signal 6"))
        else:
            self._events.put(Ready(model="m", context_max=100, block_size=4))

    def receive(self, timeout: float | None = None) -> Any:
        found = self._events.get()
        if isinstance(found, Exception):
            raise found
        return found

    def close(self, *, now: bool = False) -> None:
        self._events.put(EOFError("closed"))


@pytest.mark.parametrize("healed", [True, False])
def test_an_engine_that_never_loaded_is_tried_without_kernels_before_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch, *, healed: bool
) -> None:
    monkeypatch.setattr(restarts, "FIRST_WAIT", 0.0)
    lives: list[Fragile] = []
    told: list[str] = []

    def connect() -> Fragile:
        lives.append(Fragile(healed=healed))
        return lives[-1]

    async def scenario() -> None:
        engine = Engine(connect, Load(model="m"), told.append)
        engine.start()
        if healed:
            await engine.until_ready(60)
        else:
            with pytest.raises(EngineDiedError):
                await asyncio.wait_for(engine.failed, 60)
        await engine.close()

    asyncio.run(scenario())
    assert [load for life in lives for load in life.loads] == [True, True, False]
    assert told.count(SAFE_MODE) == 1


def test_only_deaths_in_a_row_and_right_after_the_start_are_early() -> None:
    found = Restarts()
    for now, (units, early) in enumerate(
        [(0, False), (EARLY_UNITS + 1, False), (EARLY_UNITS, False), (1, True)]
    ):
        found.after_death(1000.0 * now, units)
        assert found.early == early
