# SPDX-License-Identifier: Apache-2.0
"""The queue, clients that leave, deadlines, the way a server ends."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from scripted_engine import Said, Script
from server_kit import PATIENCE, Running, until

from splashpy.errors import PackageError, PortError
from splashpy.protocol import Load
from splashpy.server import serving
from splashpy.server.serving import open_sockets
from splashpy.server.settings import ServerSettings

BODY = {"messages": [{"role": "user", "content": "hi"}]}
TEXT = "</think>" + "word " * 30 + "<|im_end|>"


def begin(server: Running, body: Any, path: str = "/v1/chat/completions") -> Any:
    """A request whose answer is not read."""
    return server.begin("POST", path, body)


def under_way(server: Running) -> list[Any]:
    """What the server keeps of requests at the engine, in their order."""
    return list(server.endpoint.engine._running.values())


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


def test_a_model_that_cannot_be_loaded_is_reported(serve: Any, tmp_path: Any) -> None:
    with Running(ServerSettings(model="x"), load=Load(model=str(tmp_path))) as server:
        until(lambda: bool(server.faults))

        assert isinstance(server.faults[0], PackageError)
        assert server.get("/health").status == 503


def test_a_server_that_ends_finishes_what_runs_and_begins_nothing(
    serve: Any, script: Script
) -> None:
    server = serve()
    free = threading.Event()
    script.say(lambda: free.wait(PATIENCE), TEXT)
    request = begin(server, BODY)
    until(lambda: [one.begun for one in under_way(server)] == [True])
    waiting = begin(server, BODY)
    until(lambda: len(under_way(server)) == 2)

    server.loop.call_soon_threadsafe(server.server.stop)
    refused = waiting.getresponse()
    code = json.loads(refused.read())["error"]["code"]
    free.set()

    assert (refused.status, code) == (503, "shutting_down")
    assert refused.headers["retry-after"] == "2"
    waiting.close()
    assert status_of(request) == 200


def test_what_does_not_end_in_time_is_told_that_the_server_ends(
    serve: Any, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(serving, "_FAREWELL_SECONDS", PATIENCE)
    server = serve()
    script.say("</think>on and on", lambda: until(lambda: bool(script.cancelled)))

    def heard(answer: bytes) -> None:
        if b'"content":"on' in answer:
            server.loop.call_soon_threadsafe(server.server.stop)

    body = {**BODY, "stream": True}
    *_, error, end = server.listen("/v1/chat/completions", body, heard).events

    assert error["error"]["code"] == "shutting_down"
    assert end == "[DONE]"


def test_a_taken_port_is_told_before_anything_is_loaded(server: Running) -> None:
    with pytest.raises(PortError, match=str(server.port)):
        open_sockets("127.0.0.1", server.port)


def test_a_deadline_ends_a_request(server: Running, script: Script) -> None:
    script.say("</think>", lambda: until(lambda: script.cancelled), "late")

    reply = server.post("/v1/chat/completions", {**BODY, "timeout": 0.2})

    assert reply.status == 504
    assert reply.headers["x-should-retry"] == "false"


def test_a_request_that_waits_beyond_its_deadline_is_told_that_it_waited(
    server: Running, script: Script
) -> None:
    free = threading.Event()
    script.say(lambda: free.wait(PATIENCE), TEXT)
    first = begin(server, BODY)
    until(lambda: [one.begun for one in under_way(server)] == [True])

    reply = server.post("/v1/chat/completions", {**BODY, "timeout": 0.05})
    free.set()

    assert reply.status == 504
    told = "the request waited 0.05 s, as long as it may, and was not begun"
    assert reply.json["error"]["message"] == told
    assert status_of(first) == 200
