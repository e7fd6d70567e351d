# SPDX-License-Identifier: Apache-2.0
"""An OpenAI endpoint that says what a test wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Say = Callable[[dict[str, Any]], list[dict[str, Any]]]
"""From a request's body to the events that answer it."""


def deltas(*texts: str, usage: dict[str, int] | None = None) -> list[dict[str, Any]]:
    """Events with these texts, and the counts at the end."""
    events: list[dict[str, Any]] = [
        {"choices": [{"delta": {"content": text}}]} for text in texts
    ]
    return [*events, {"choices": [], "usage": usage}] if usage else events


class Endpoint(ThreadingHTTPServer):
    """Listens at a free port of this machine.

    Attributes:
        asked: bodies of requests, in the order they came.
        most: requests that were open at the same time, at most.
        keys: what came as ``Authorization``.
    """

    daemon_threads = True

    def __init__(self, say: Say, *, key: str = "", together: int = 0):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.say, self.key = say, key
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.gate = threading.Barrier(together) if together else None
        self.guarded = threading.Lock()
        self.open = self.most = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


@contextmanager
def serving(say: Say, **options: Any) -> Iterator[Endpoint]:
    with Endpoint(say, **options) as endpoint:
        thread = threading.Thread(target=endpoint.serve_forever, daemon=True)
        thread.start()
        yield endpoint
        endpoint.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""

    def do_GET(self) -> None:
        self._json(200, {"data": [{"id": "first"}, {"id": "second"}]})

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Endpoint)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        given = self.headers.get("Authorization", "")
        with server.guarded:
            server.asked.append(body)
            server.keys.append(given)
            server.open += 1
            server.most = max(server.most, server.open)
        if server.key and given != f"Bearer {server.key}":
            self._json(401, {"error": {"message": "wrong key"}})
        else:
            if server.gate is not None:
                server.gate.wait(60)
            self._stream(server.say(body))
        with server.guarded:
            server.open -= 1

    def _stream(self, events: list[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        for line in (": a comment\n\n", *lines, "data: [DONE]\n\n"):
            self.wfile.write(line.encode())

    def _json(self, status: int, value: dict[str, Any]) -> None:
        payload = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)
