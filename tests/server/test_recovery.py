# SPDX-License-Identifier: Apache-2.0
"""Engines that die: what becomes of requests, and when no more is tried."""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_engine import Said, Script
from server_kit import Mortal, Running, until

from splashpy.client.client import EngineClient
from splashpy.errors import EngineDiedError
from splashpy.protocol import (
    Accepted,
    Command,
    Done,
    Generate,
    Load,
    Prefill,
    Ready,
)
from splashpy.server.engine import Engine
from splashpy.server.restarts import LONGEST_WAIT, MOST_DEATHS, WITHIN_SECONDS, Restarts

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hi"}]}
WHOLE = "</think>whole<|im_end|>"

Mortals = Callable[..., tuple[Running, list[Mortal]]]


def under_way(server: Running) -> list[Any]:
    return list(server.endpoint.engine._running.values())


def until_begun(server: Running) -> None:
    until(lambda: any(one.begun for one in under_way(server)))


def follow(lives: list[Mortal], count: int) -> Callable[[], None]:
    """A step of an engine that goes on when it was followed by others."""
    return lambda: until(lambda: len(lives) >= count)


def answer_of(connection: Any) -> tuple[int, Any]:
    response = connection.getresponse()
    text = json.loads(response.read())
    connection.close()
    return response.status, text


def test_a_stream_that_was_begun_ends_in_one_clear_error(
    mortal: Mortals, script: Script
) -> None:
    server, lives = mortal()
    script.answers = [Said(("</think>half", follow(lives, 2))), Said((WHOLE,))]

    def heard(answer: bytes) -> None:
        lives[0].dead = b'"content":"half"' in answer or lives[0].dead

    reply = server.listen(CHAT, {**BODY, "stream": True}, heard)
    later = server.post(CHAT, BODY)

    *_, error, end = reply.events
    assert error["error"]["code"] == "engine_recovering"
    assert "killed by signal 9" in error["error"]["message"]
    assert end == "[DONE]"
    assert later.json["choices"][0]["message"]["content"] == "whole"
    assert server.log[0] == "killed by signal 9; starting it again at once"
    status = server.get("/status").json["engine"]
    assert (status["restarts"], status["replayed_requests"]) == (1, 0)


@pytest.mark.parametrize(
    ("stream", "text"), [(False, ""), (False, "</think>half"), (True, "")]
)
def test_a_request_of_which_nothing_was_sent_begins_anew(
    mortal: Mortals, script: Script, *, stream: bool, text: str
) -> None:
    server, lives = mortal()
    script.answers = [Said((text, follow(lives, 2))), Said((WHOLE,))]
    request = server.begin("POST", CHAT, {**BODY, "stream": stream})
    until_begun(server)

    lives[0].dead = True

    response = request.getresponse()
    whole = response.read().decode()
    request.close()
    assert response.status == 200
    if stream:
        assert whole.count('"role":"assistant"') == 1
        assert "error" not in whole
    else:
        found = json.loads(whole)
        assert found["choices"][0]["message"]["content"] == "whole"
        assert found["usage"]["completion_tokens"] == 1 + len("whole") + 1
    first, second = script.requests
    assert first.token_ids == second.token_ids
    assert second.foreground  # it was before those that wait
    assert "splashpy_requests_replayed_total 1" in server.get("/metrics").body.decode()


def test_what_waits_when_an_engine_dies_keeps_its_place(
    mortal: Mortals, script: Script
) -> None:
    server, lives = mortal()
    script.answers = [Said((follow(lives, 2),)), Said((WHOLE,))]
    held = []
    for number in range(3):
        body = {"messages": [{"role": "user", "content": "x" * number}]}
        held.append(server.begin("POST", CHAT, body))
        until(lambda: len(script.requests) == len(held))
    until_begun(server)

    lives[0].dead = True

    assert [answer_of(item)[0] for item in held] == [200] * 3
    order = [len(request.token_ids) for request in script.requests]
    assert order[3:] == order[:3]


def test_a_request_that_kills_two_engines_is_not_tried_again(
    mortal: Mortals, script: Script
) -> None:
    server, lives = mortal()
    script.answers = [
        Said((follow(lives, 2),)),
        Said((follow(lives, 3),)),
        Said((WHOLE,)),
    ]
    poison = server.begin("POST", CHAT, BODY)
    until_begun(server)
    innocent = server.begin("POST", CHAT, BODY)
    until(lambda: len(script.requests) == 2)
    ids = [request.id for request in script.requests]

    lives[0].dead = True
    until(lambda: len(lives) == 2)
    until_begun(server)
    lives[1].dead = True

    status, told = answer_of(poison)
    assert (status, told["error"]["code"]) == (500, "engine_failed")
    assert "died twice while it worked on this request" in told["error"]["message"]
    assert answer_of(innocent)[0] == 200
    assert [request.id for request in script.requests] == [*ids, *ids, ids[1]]


def test_an_engine_that_dies_over_and_over_is_given_up_and_health_says_why(
    mortal: Mortals,
) -> None:
    server, lives = mortal()
    for deaths in range(1, MOST_DEATHS + 1):
        until(lambda: server.endpoint.engine.state == "ready")
        lives[-1].dead = True
        if deaths < MOST_DEATHS:
            until(lambda: len(lives) == deaths + 1)  # noqa: B023 - called at once
    until(lambda: server.endpoint.engine.state == "failed")

    health, refused = server.get("/health"), server.post(CHAT, BODY)

    assert health.status == refused.status == 503
    assert "died too often within 10 minutes" in health.json["error"]["message"]
    assert "killed by signal 9" in health.json["error"]["message"]
    assert refused.json["error"]["code"] == "engine_failed"
    assert refused.headers["x-should-retry"] == "false"
    assert server.get("/ready").json["reason"] == "failed"
    assert server.get("/status").json["engine"]["problem"].startswith("the engine died")
    assert server.log[-1].endswith("restart the server")


def test_a_count_is_asked_again_at_the_next_engine(
    mortal: Mortals, script: Script
) -> None:
    server, lives = mortal()
    expected = server.post(f"{CHAT}/input_tokens", BODY).json
    lives[0].send = lambda command: None
    count = server.begin("POST", f"{CHAT}/input_tokens", BODY)
    until(lambda: bool(server.endpoint.engine._questions))

    lives[0].dead = True

    assert answer_of(count) == (200, expected)


class Lanes(EngineClient):
    """An engine that begins everything at once and ends what it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def send(self, command: Command) -> None:
        if isinstance(command, Load):
            self._events.put(Ready(model="m", context_max=100, block_size=4))
        elif isinstance(command, Generate):
            self.asked.append(command.id)
            self._events.put(Accepted(id=command.id, prompt=1))
            fields = {"total": 1, "cached": 0, "processed": 1, "elapsed_ms": 0.0}
            self._events.put(Prefill(id=command.id, **fields))

    def receive(self, timeout: float | None = None) -> Any:
        found = self._events.get()
        if isinstance(found, Exception):
            raise found
        return found

    def end(self, request: str) -> None:
        self._events.put(Done(id=request, reason="stop"))

    def die(self) -> None:
        self._events.put(EngineDiedError("killed by signal 9"))

    def close(self, *, now: bool = False) -> None:
        self._events.put(EOFError("closed"))


def test_requests_an_engine_may_have_died_of_are_tried_one_at_a_time() -> None:
    lives: list[Lanes] = []

    def connect() -> Lanes:
        lives.append(Lanes())
        return lives[-1]

    async def settled(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.001)

    async def scenario() -> None:
        engine = Engine(connect, Load(model="m"))
        engine.start()
        await engine.until_ready(60)
        running = [engine.generate(Generate(id=name)) for name in "abc"]
        await settled(lambda: all(one.begun for one in running))
        assert lives[0].asked == ["a", "b", "c"]

        lives[0].die()
        await settled(lambda: running[0].begun and len(lives) == 2)
        engine.generate(Generate(id="new"))
        await settled(lambda: len(lives[1].asked) == 2)
        assert lives[1].asked == ["a", "new"]  # b and c wait for the end of a
        lives[1].end("a")
        await settled(lambda: len(lives[1].asked) == 3)
        assert lives[1].asked[-1] == "b"
        await engine.close()

    asyncio.run(scenario())


@given(st.lists(st.floats(0, 2 * WITHIN_SECONDS), max_size=30))
def test_waits_grow_up_to_a_limit_and_end_at_too_many_deaths(
    pauses: list[float],
) -> None:
    restarts, now, deaths = Restarts(), 0.0, []
    for pause in pauses:
        now += pause
        deaths.append(now)
        recent = sum(now - death < WITHIN_SECONDS for death in deaths)

        wait = restarts.after_death(now, 9)

        assert (wait is None) == (recent >= MOST_DEATHS)
        if wait is not None:
            expected = min(2.0 ** (recent - 2), LONGEST_WAIT) if recent > 1 else 0.0
            assert wait == expected
