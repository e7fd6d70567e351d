# SPDX-License-Identifier: Apache-2.0
"""Requests whose beginning or end is a matter of opinion, and those that never end."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from server_kit import Running

from splashpy.server.app import Handlers
from splashpy.server.gate import PUBLIC

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
POST += b"Content-Type: application/json\r\n"
HIDDEN = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"


def said(server: Running, *parts: bytes) -> bytes:
    """What the server sends until it closes the connection."""
    received = b""
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as link,
        contextlib.suppress(ConnectionError),  # it need not read to the end
    ):
        link.sendall(b"".join(parts))
        while data := link.recv(65536):
            received += data
    return received


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
        b" Transfer-Encoding: chunked\r\n",
        b"Content-Length : 5\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: 0x5\r\n",
        b"Content-Length: 5 5\r\n",
        b"Content-Length: 5, 6\r\n",
        b"Content-Length:\r\n",
        b"Host: localhost\r\n",
        b"X: a\rContent-Length: 5\r\n",
        b"X: a\x00b\r\n",
    ],
)
def test_no_opinion_about_the_end_of_a_request_lets_another_through(
    server: Running, headers: bytes
) -> None:
    received = said(server, POST + headers + b"\r\n", b"0\r\n\r\n" + HIDDEN)

    assert received[9:12] in (b"400", b"411", b"415", b"501")
    assert b'{"version"' not in received


@pytest.mark.parametrize(
    "chunks",
    [
        b"-1\r\n\r\n0\r\n\r\n",
        b"0x1\r\na\r\n0\r\n\r\n",
        b"1\na\r\n0\r\n\r\n",
        b"ffffffffffffffffffffff\r\na\r\n0\r\n\r\n",
        b"1\r\nab\r\n0\r\n\r\n",
        b"\r\n0\r\n\r\n",
    ],
)
def test_chunks_of_a_doubtful_size_let_no_other_request_through(
    server: Running, chunks: bytes
) -> None:
    head = POST + b"Transfer-Encoding: chunked\r\n\r\n"

    received = said(server, head, chunks + HIDDEN)

    assert b" 200 " not in received
    assert b'{"version"' not in received


def test_a_head_that_trickles_is_given_up(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splashpy.server.serving._HEADER_SECONDS", 0.2)
    closed = threading.Event()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as link:

        def trickle() -> None:
            link.sendall(b"GET /health HTTP/1.1\r\nX: ")
            while not closed.wait(0.02):
                try:
                    link.sendall(b"x")
                except OSError:
                    return

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert not _answered(link)
        finally:
            closed.set()
            thread.join()


def _answered(link: socket.socket) -> bool:
    """Whether the server sent anything before it closed."""
    try:
        return bool(link.recv(100))
    except ConnectionError:
        return False


# --- every route ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def locked(speaker: Any, start: Any) -> Iterator[Running]:
    server = start(speaker, key="s3cret", ollama=True, lmstudio=True)
    server.wait_ready()
    yield server
    server.__exit__()
    assert server.faults == []


def test_every_route_wants_the_key_and_a_known_name_before_it_reads_a_body(
    locked: Running,
) -> None:
    routes = Handlers(locked.endpoint).routes()
    for route in routes:
        path = route.path.replace("{id:path}", "x").replace("{id}", "x")
        for method in sorted((route.methods or set()) - {"HEAD"}):
            foreign = locked.request(method, path, headers={"Host": "evil.example"})
            stranger = locked.request(method, path)

            assert foreign.status == 403, (method, path)
            assert (stranger.status == 401) is (path not in PUBLIC), (method, path)
