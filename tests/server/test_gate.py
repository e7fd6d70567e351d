# SPDX-License-Identifier: Apache-2.0
"""Who may call, and what a request must look like before anybody reads it."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

import pytest
from server_kit import PATIENCE, Running

from splashpy.server.gate import PUBLIC

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
GUARDED = (
    ("GET", "/v1/models"),
    ("GET", "/metrics"),
    ("GET", "/status"),
    ("GET", "/props"),
    ("GET", "/slots"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/tokenize"),
)
OPEN = ("/", "/health", "/ready", "/version", "/v1/health", "/healthz", "/ping")


LAST = b"Connection: close\r\n"
"""A header after whose request the server ends the connection."""


def raw(server: Running, *parts: bytes) -> bytes:
    """What the server sends until it closes the connection."""
    address = ("127.0.0.1", server.port)
    with socket.create_connection(address, timeout=PATIENCE) as link:
        # At once: who sends to a connection that was closed loses what came before.
        link.sendall(b"".join(parts))
        received = b""
        while data := link.recv(65536):
            received += data
        return received


# --- host, origin, key ----------------------------------------------------------------


@pytest.mark.parametrize("path", [*OPEN, "/v1/models", "/nowhere"])
def test_a_foreign_name_is_refused_on_every_path(server: Running, path: str) -> None:
    reply = server.get(path, Host="evil.example")

    assert reply.status == 403
    assert "evil.example" in reply.json["error"]["message"]


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8000", "app.localhost:1", "127.0.0.1", "[::1]:8000"],
)
def test_local_names_are_answered(server: Running, host: str) -> None:
    assert server.get("/health", Host=host).status == 200


def test_a_name_can_be_allowed(serve: Any) -> None:
    server = serve(hosts=("My.Mac",))

    assert server.get("/health", Host="my.mac:8000").status == 200
    assert server.get("/health", Host="my.mac.evil").status == 403


@pytest.mark.parametrize("header", [b"", b"Host: \r\nConnection: close\r\n"])
def test_a_request_without_a_host_is_refused(server: Running, header: bytes) -> None:
    assert b" 400 " in raw(server, b"GET /health HTTP/1.1\r\n" + header + b"\r\n")


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost:3000", True),
        ("https://127.0.0.1", True),
        ("vscode-webview://abc", True),
        ("app://obsidian.md", True),
        ("http://evil.example", False),
        ("null", False),
        ("http://localhost.evil.example", False),
        ("http://[", False),
        ("http://[::1]:9", True),
    ],
)
def test_web_pages_call_only_from_here(
    server: Running, origin: str, *, allowed: bool
) -> None:
    reply = server.get("/health", Origin=origin)

    assert reply.status == (200 if allowed else 403)
    assert ("access-control-allow-origin" in reply.headers) is allowed


def test_an_origin_can_be_allowed(serve: Any) -> None:
    server = serve(origins=("https://chat.example",))

    reply = server.get("/health", Origin="https://chat.example")

    assert reply.headers["access-control-allow-origin"] == "https://chat.example"
    assert reply.headers["vary"] == "Origin"


def test_any_origin_can_be_allowed(serve: Any) -> None:
    reply = serve(origins=("*",)).get("/health", Origin="null")

    assert reply.headers["access-control-allow-origin"] == "*"


def test_a_page_of_another_site_is_refused_without_an_origin(server: Running) -> None:
    assert server.get("/health", **{"Sec-Fetch-Site": "cross-site"}).status == 403
    assert server.get("/health", **{"Sec-Fetch-Mode": "cors"}).status == 200


def test_a_browser_that_asks_first_is_told_what_it_may_do(server: Running) -> None:
    reply = server.request(
        "OPTIONS",
        "/v1/chat/completions",
        headers={
            "Origin": "http://localhost:5173",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, content-type",
            "Access-Control-Request-Private-Network": "true",
        },
    )

    assert reply.status == 204
    headers = reply.headers
    assert headers["access-control-allow-headers"] == "authorization, content-type"
    assert "POST" in headers["access-control-allow-methods"]
    assert headers["access-control-allow-private-network"] == "true"
    assert server.request("OPTIONS", "/v1/models").headers["allow"]


@pytest.mark.parametrize(("method", "path"), GUARDED)
def test_a_key_is_wanted_before_a_body_is_read(
    serve: Any, method: str, path: str
) -> None:
    server = serve(key="s3cret")
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 1000\r\n"

    received = raw(server, head.encode(), LAST, b"\r\n")

    assert received.startswith(b"HTTP/1.1 401 ")
    assert b"www-authenticate: Bearer" in received
    assert b"wants its key" in received


def test_every_route_wants_the_key_and_a_local_name(serve: Any) -> None:
    server = serve(key="s3cret", ollama=True, lmstudio=True)
    key = {"Authorization": "Bearer s3cret"}
    document = server.get("/openapi.json", **key).json["paths"]
    routes = [
        (method.upper(), path.replace("{id}", "x"))
        for path, item in document.items()
        for method in item
        if method in ("get", "post", "delete")
    ]

    for method, path in routes:
        bare = server.request(method, path, headers={"Content-Type": "text/plain"})
        named = server.request(method, path, headers={**key, "Host": "evil.example"})
        assert (bare.status == 401) is (path not in PUBLIC), path
        assert named.status == 403, path
    assert len(routes) > 50


@pytest.mark.parametrize("path", OPEN)
def test_signs_of_life_need_no_key(serve: Any, path: str) -> None:
    assert serve(key="s3cret").get(path).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": "Bearer s3cret"}, 200),
        ({"Authorization": "bearer   s3cret "}, 200),
        ({"x-api-key": "s3cret"}, 200),
        ({"api-key": "s3cret"}, 200),
        ({"Authorization": "Bearer dummy", "x-api-key": "s3cret"}, 200),
        ({"Authorization": "Basic s3cret"}, 401),
        ({"Authorization": "Bearer s3cre"}, 401),
        ({"Authorization": "Bearer s3cret\u00e9".encode().decode("latin-1")}, 401),
        ({}, 401),
    ],
)
def test_a_key_may_be_shown_in_several_ways(
    serve: Any, headers: dict[str, str], status: int
) -> None:
    assert serve(key="s3cret").get("/v1/models", **headers).status == status


def test_without_a_key_anything_shown_is_ignored(server: Running) -> None:
    assert server.get("/v1/models", Authorization="Bearer DUMMY_KEY").status == 200


# --- paths ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/v1/chat/completions/",
        "//v1//chat/completions",
        "/v1/./chat/../chat/completions",
        "/chat/completions",
        "/v1/v1/chat/completions",
        "/v1/chat/completions?beta=true",
    ],
)
def test_a_path_may_be_written_in_several_ways(server: Running, path: str) -> None:
    assert server.post(path, CHAT).status == 200


def test_what_is_not_here_is_said_in_json(server: Running) -> None:
    reply = server.get("/v1/nowhere")

    assert reply.status == 404
    assert reply.json["error"]["code"] == "not_found"
    assert server.post("/v1/messages/nowhere", {}).json["type"] == "error"


def test_the_wrong_method_is_told_the_right_one(server: Running) -> None:
    reply = server.get("/v1/chat/completions")

    assert reply.status == 405
    assert reply.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["/", "/health", "/v1/models"])
def test_head_is_get_without_a_body(server: Running, path: str) -> None:
    reply = server.request("HEAD", path)

    assert reply.status == 200
    assert reply.body == b""


# --- bodies ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "empty"),
        (b"{", "not JSON"),
        (b'{"stream": true, ', "not JSON"),
        (b"[1]", "object"),
        (b'{"temperature": NaN}', "NaN"),
        (b"\xff{}", "UTF-8"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "deeper"),
        (b'{"a":' + b"[" * 100_000, "deeper"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused(
    server: Running, body: bytes, told: str
) -> None:
    headers = {"Content-Type": "application/json"}

    reply = server.request("POST", "/v1/chat/completions", body, headers)
    native = server.request("POST", "/tokenize", body, headers)

    assert reply.status == native.status == 400
    assert told in reply.json["error"]["message"]
    assert reply.json["error"]["type"] == "invalid_request_error"
    assert native.json["error"]["code"] == 400


def test_of_equal_keys_the_last_counts_and_lone_surrogates_are_replaced(
    server: Running,
) -> None:
    body = b'{"content": "x", "content": "a\\ud800b"}'
    headers = {"Content-Type": "application/json; charset=utf-8"}

    tokens = server.request("POST", "/tokenize", body, headers).json["tokens"]

    text = server.post("/detokenize", {"tokens": tokens}).json["content"]
    assert text == "a\ufffdb"


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("application/vnd.api+json; v=1", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("", 415),
    ],
)
def test_only_json_is_taken(server: Running, kind: str, status: int) -> None:
    body = json.dumps(CHAT).encode()

    reply = server.request("POST", "/v1/chat/completions", body, {"Content-Type": kind})

    assert reply.status == status


def test_a_compressed_body_is_refused(server: Running) -> None:
    reply = server.post("/v1/chat/completions", CHAT, **{"Content-Encoding": "gzip"})

    assert reply.status == 415


def test_a_body_beyond_the_limit_is_refused_with_and_without_its_length(
    serve: Any,
) -> None:
    server = serve(max_body_bytes=1000)
    big = {"messages": [{"role": "user", "content": "x" * 2000}]}

    declared = server.post("/v1/chat/completions", big)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked = raw(server, head, b"7d0\r\n" + b"x" * 2000 + b"\r\n0\r\n\r\n")

    assert declared.status == 413
    assert declared.headers["connection"] == "close"
    assert chunked.startswith(b"HTTP/1.1 413 ")


def test_a_body_in_chunks_is_read(server: Running) -> None:
    body = json.dumps(CHAT).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n" + LAST
    head += b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = [b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:9], body[9:])]

    received = raw(server, head, *chunks, b"0\r\n\r\n")

    assert received.startswith(b"HTTP/1.1 200 ")


def test_a_body_of_no_stated_length_is_refused(server: Running) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/json\r\n\r\n"
    next_one = b"GET /version HTTP/1.1\r\nHost: localhost\r\n" + LAST + b"\r\n"

    received = raw(server, head, next_one)

    assert received.startswith(b"HTTP/1.1 411 ")
    assert b"200 OK" in received  # the connection stays of use


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: many\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 5 \x00\r\n",
    ],
)
def test_requests_that_hide_another_are_refused(
    server: Running, headers: bytes
) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/json\r\n"
    hidden = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"

    received = raw(server, head + headers + b"\r\n", b"0\r\n\r\n" + hidden)

    assert received[9:12] in (b"400", b"501")
    assert b'{"version"' not in received


def test_a_head_that_never_ends_is_given_up(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splashpy.server.serving._HEADER_SECONDS", 0.2)
    address = ("127.0.0.1", server.port)
    received = b""
    with (
        socket.create_connection(address, timeout=PATIENCE) as link,
        contextlib.suppress(ConnectionError),  # given up before all was sent
    ):
        link.sendall(b"GET /health HTTP/1.1\r\nHost: loc")
        received = link.recv(100)
    assert received == b""


def test_a_body_that_trickles_is_given_up(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splashpy.server.bodies._IDLE_SECONDS", 0.2)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"

    assert raw(server, head).startswith(b"HTTP/1.1 408 ")
