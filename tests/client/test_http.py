# SPDX-License-Identifier: Apache-2.0
"""Addresses that are none, and servers that answer what no server should."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from splashpy.client.http import HttpClient
from splashpy.errors import ServerError, UsageError
from splashpy.protocol import Done, Generate, Hello, Ready

PATIENCE_SECONDS = 30.0
Serve = Callable[[dict[str, bytes]], str]


@pytest.mark.parametrize(
    "url",
    ["", "ftp://localhost", "localhost:abc", "http://h:70000", "http://[::1", "h:0"],
)
def test_what_is_no_address_is_refused_before_anything_is_asked(url: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a server") as refused:
        HttpClient(url)

    assert any("http://127.0.0.1" in fix for fix in refused.value.fix)


def until(client: HttpClient, kind: type) -> None:
    """Take events up to one of a kind; silence is a failure."""
    event = None
    while not isinstance(event, kind):
        event = client.receive(PATIENCE_SECONDS)
        assert event is not None


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers that give every path a fixed answer."""
    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def begin(answers: dict[str, bytes]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(answers.get(self.path, b"{}"))

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *_: Any) -> None:  # noqa: A002
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield begin
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("models", [{"data": {"a": 1}}, {"data": [{"meta": "none"}]}])
def test_a_greeting_of_an_odd_form_is_an_error_and_no_silence(
    serve: Serve, models: dict[str, Any]
) -> None:
    with HttpClient(serve({"/v1/models": json.dumps(models).encode()})) as client:
        client.send(Hello())
        with pytest.raises(ServerError, match="in a form splashpy cannot read"):
            until(client, Done)


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": {"a": 1}},
        {"choices": [{"delta": "x"}]},
        {"timings": {"prompt_ms": [1]}},
    ],
)
def test_a_chunk_of_an_odd_form_is_an_error_and_no_silence(
    serve: Serve, chunk: dict[str, Any]
) -> None:
    stream = b"data: " + json.dumps({"choices": [{"index": 0}], **chunk}).encode()
    url = serve({"/v1/chat/completions": stream + b"\n\ndata: [DONE]\n\n"})
    with HttpClient(url) as client:
        client.send(Hello())
        until(client, Ready)
        client.send(Generate(id="a", messages=({"role": "user", "content": "hi"},)))
        with pytest.raises(ServerError, match="in a form splashpy cannot read"):
            until(client, Done)
