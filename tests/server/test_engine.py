# SPDX-License-Identifier: Apache-2.0
"""The queue, clients that leave, engines that die, the way a server ends."""

from __future__ import annotations

import functools
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from server_kit import PATIENCE, Running, Said, Script, ScriptedEngine, until
from tokenizers import Tokenizer

from splashpy.client.in_process import InProcessClient
from splashpy.errors import EngineDiedError, PackageError, PortError
from splashpy.host import host as host_module
from splashpy.protocol import Load
from splashpy.server.serving import open_sockets
from splashpy.server.settings import ServerSettings

BODY = {"messages": [{"role": "user", "content": "hi"}]}
TEXT = "</think>" + "word " * 30 + "<|im_end|>"


def begin(server: Running, body: Any, path: str = "/v1/chat/completions") -> Any:
    """A request whose answer is not read."""
    return server.begin("POST", path, body)


def status_of(connection: Any) -> int:
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_stops_its_request(
    server: Running, script: Script, *, stream: bool
) -> None:
    going = threading.Event()
    script.answers = [
        Said(("</think>one", going.set, lambda: until(lambda: script.cancelled), "x")),
        Said(),
    ]
    connection = begin(server, {**BODY, "stream": stream})
    assert going.wait(PATIENCE)

    connection.close()

    until(lambda: len(script.cancelled) == 1)
    until(lambda: server.endpoint.active == 0)
    assert server.post("/v1/chat/completions", BODY).status == 200
    assert script.ended[0][1] == "cancelled"


def test_a_client_that_leaves_the_queue_is_dropped(
    server: Running, script: Script
) -> None:
    free = threading.Event()
    script.answers = [Said((lambda: free.wait(PATIENCE), TEXT)), Said()]
    first = begin(server, BODY)
    until(lambda: len(script.requests) == 1)
    second = begin(server, {**BODY, "stream": True})
    until(lambda: len(script.requests) == 2)

    second.close()

    until(lambda: script.cancelled == [script.requests[1].id])
    free.set()
    assert status_of(first) == 200


def test_the_queue_has_an_end_and_says_so(serve: Any, script: Script) -> None:
    server = serve(max_queue=2)
    free = threading.Event()
    script.say(lambda: free.wait(PATIENCE), TEXT)
    held = [begin(server, BODY) for _ in range(3)]
    until(lambda: server.endpoint.active == 3)

    refused = server.post("/v1/chat/completions", BODY)
    counted = server.post("/v1/chat/completions/input_tokens", BODY)

    assert refused.status == 429
    assert refused.headers["retry-after"] == "1"
    assert refused.json["error"]["code"] == "queue_full"
    assert server.get("/ready").status == 503
    assert counted.status == 200  # what needs no target waits for nobody
    free.set()
    assert [status_of(item) for item in held] == [200] * 3


def test_who_waits_at_a_keyboard_goes_first(server: Running, script: Script) -> None:
    free = threading.Event()
    script.say(lambda: free.wait(PATIENCE), TEXT)
    held = [begin(server, BODY)]
    until(lambda: len(script.requests) == 1)
    for fields in ({}, {"priority": "foreground"}):
        held.append(begin(server, {**BODY, **fields}))
        until(lambda: len(script.requests) == len(held))
    free.set()
    assert [status_of(item) for item in held] == [200] * 3
    assert [request.foreground for request in script.requests] == [False, False, True]


def test_the_port_answers_while_the_model_is_loaded(serve: Any, script: Script) -> None:
    script.gate = threading.Event()
    server = serve(ready=False, load_seconds=0.1)

    health = server.get("/health")
    early = server.post("/v1/chat/completions", BODY)

    assert health.status == 503
    assert health.json["error"]["message"] == "Loading model"
    assert health.json["error"]["type"] == "unavailable_error"
    assert early.status == 503
    assert early.headers["retry-after"] == "2"
    assert early.json["error"]["code"] == "model_loading"
    assert server.get("/ready").json["reason"] == "loading"
    assert server.get("/v1/models").json["data"][0]["meta"] is None
    script.gate.set()
    server.wait_ready()
    assert server.get("/v1/models").json["data"][0]["meta"]["n_ctx"] == 4096


def test_a_request_during_loading_waits_for_the_model(
    serve: Any, script: Script
) -> None:
    script.gate = threading.Event()
    server = serve(ready=False)
    waiting = begin(server, BODY)
    script.gate.set()

    assert status_of(waiting) == 200


def test_an_engine_that_dies_is_started_again(
    speaker: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mortal(InProcessClient):
        dead = False

        def receive(self, timeout: float | None = None) -> Any:
            if self.dead:
                raise EngineDiedError("killed by signal 9")
            return super().receive(0.02)

    lives: list[Mortal] = []

    def connect() -> Mortal:
        lives.append(Mortal())
        return lives[-1]

    engine = functools.partial(
        ScriptedEngine, script, Tokenizer.from_file(str(speaker / "tokenizer.json"))
    )
    monkeypatch.setattr(host_module, "Engine", engine)
    script.answers = [Said(("</think>half", lambda: until(lambda: len(lives) > 1)))]
    settings = ServerSettings(model="tiny")
    with Running(settings, connect, Load(model=str(speaker), name="tiny")) as server:
        server.wait_ready()
        script.gate = threading.Event()

        def heard(answer: bytes) -> None:
            lives[0].dead = b'"content":"half"' in answer or lives[0].dead

        body = {**BODY, "stream": True}
        text = server.listen("/v1/chat/completions", body, heard).body.decode()

        assert "engine_recovering" in text
        assert text.endswith("data: [DONE]\n\n")
        assert server.get("/health").status == 503
        script.say(TEXT)
        script.gate.set()
        assert server.post("/v1/chat/completions", BODY).status == 200
        assert len(lives) == 2
        assert "starting it again in 1 s" in server.log[0]


def test_a_model_that_cannot_be_loaded_is_reported(serve: Any, tmp_path: Any) -> None:
    with Running(ServerSettings(model="x"), load=Load(model=str(tmp_path))) as server:
        until(lambda: bool(server.faults))

        assert isinstance(server.faults[0], PackageError)
        assert server.get("/health").status == 503


def test_a_server_that_ends_finishes_what_runs_and_admits_nothing(
    serve: Any, script: Script
) -> None:
    server = serve()
    free = threading.Event()
    script.say(lambda: free.wait(PATIENCE), TEXT)
    request = begin(server, BODY)
    waiting = begin(server, BODY)
    until(lambda: server.endpoint.active == 2)

    server.loop.call_soon_threadsafe(server.server.stop)
    until(lambda: server.endpoint.draining)
    free.set()

    assert status_of(request) == 200
    assert status_of(waiting) == 200


def test_a_taken_port_is_told_before_anything_is_loaded(server: Running) -> None:
    with pytest.raises(PortError, match=str(server.port)):
        open_sockets("127.0.0.1", server.port)


def test_a_deadline_ends_a_request(server: Running, script: Script) -> None:
    script.say("</think>", lambda: until(lambda: script.cancelled), "late")

    reply = server.post("/v1/chat/completions", {**BODY, "timeout": 0.2})

    assert reply.status == 504
    assert reply.headers["x-should-retry"] == "false"


def test_two_hundred_requests_that_leave_at_random_leave_nothing_behind(
    serve: Any, script: Script
) -> None:
    server = serve(max_queue=300)
    script.say(TEXT, block=2)
    chance = random.Random(5)

    def one(number: int) -> int:
        body = {**BODY, "stream": number % 2 == 0}
        connection = begin(server, body)
        if chance.random() < 0.4:
            if chance.random() < 0.5:
                until(lambda: len(script.requests) > number // 8)
            connection.close()
            return 0
        response = connection.getresponse()
        response.read(40 if chance.random() < 0.2 else None)
        connection.close()
        return response.status

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(one, range(200)))

    assert set(statuses) == {0, 200}
    until(lambda: server.endpoint.active == 0)
    assert server.endpoint.engine._running == {}
    assert server.get("/ready").status == 200
    status = server.get("/status").json
    assert sum(status["requests"].values()) <= 200
    assert status["queue"] == {"running": 0, "waiting": 0, "capacity": 300}
    assert "splashpy_requests_total" in server.get("/metrics").body.decode()
