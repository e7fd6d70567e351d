# SPDX-License-Identifier: Apache-2.0
"""A server that runs in this process, and a plain HTTP client for it."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from splashpy.client.in_process import InProcessClient
from splashpy.errors import EngineDiedError
from splashpy.protocol import Load
from splashpy.server.endpoint import Endpoint
from splashpy.server.engine import Engine as ServerEngine
from splashpy.server.serving import HttpServer, open_sockets
from splashpy.server.settings import ServerSettings

THOUGHT = (
    "output_item.added",
    "reasoning_summary_part.added",
    "reasoning_summary_text.delta",
    "reasoning_summary_text.done",
    "reasoning_summary_part.done",
    "output_item.done",
)
"""Kinds of the events that bring a model's reasoning in a stream of Responses."""

PATIENCE = 60.0
"""Seconds after which what a test waits for has not happened."""


@dataclass(slots=True)
class Reply:
    """One answer over HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The data of server-sent events, ``[DONE]`` as a string."""
        found = []
        for frame in self.body.decode().split("\n\n"):
            lines = [line for line in frame.split("\n") if line]
            for line in lines:
                if line.startswith("data: "):
                    text = line.removeprefix("data: ")
                    found.append(text if text == "[DONE]" else json.loads(text))
        return found


class Mortal(InProcessClient):
    """An engine in this process that can be killed."""

    dead = False

    def receive(self, timeout: float | None = None) -> Any:
        if self.dead:
            raise EngineDiedError("killed by signal 9")
        return super().receive(0.02)


class Running:
    """A server on a thread of its own."""

    def __init__(
        self,
        settings: ServerSettings,
        connect: Callable[[], Any] = InProcessClient,
        load: Load | None = None,
    ):
        self.settings = settings
        self.faults: list[Exception] = []
        self.log: list[str] = []
        self._connect = connect
        self._load = load or Load(model="none")
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Running:
        self._thread.start()
        assert self._up.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.server.stop)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        idle = self.settings.idle_seconds
        tell = self.log.append
        engine = ServerEngine(
            self._connect, self._load, tell, note=tell, idle_seconds=idle
        )
        self.endpoint = Endpoint(
            self.settings, engine, lambda: 1_795_969_286.0, log=self.log.append
        )
        sockets = open_sockets("127.0.0.1", 0)
        self.server = HttpServer(self.endpoint, sockets, self.faults.append)
        self.port = self.server.port
        engine.failed.add_done_callback(lambda f: self.faults.append(f.exception()))
        engine.start()
        self._up.set()
        await self.server.run()
        await engine.close()

    @property
    def engine_started(self) -> bool:
        """Whether the host of the first engine exists."""
        link = self.endpoint.engine._links._present
        return link is not None and link._client is not None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_ready(self) -> Running:
        """Wait until the model is loaded."""
        end = time.monotonic() + PATIENCE
        while self.get("/health").status != 200:
            assert time.monotonic() < end
            assert not self.faults, self.faults
            time.sleep(0.01)
        return self

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        connection = self.begin(method, path, body, headers)
        response = connection.getresponse()
        reply = Reply(response.status, _headers(response), response.read())
        connection.close()
        return reply

    def begin(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> http.client.HTTPConnection:
        """A request whose answer nobody has read yet."""
        port, patience = self.port, PATIENCE
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience)
        sent = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection.request(method, path, body, sent)
        return connection

    def listen(self, path: str, body: Any, heard: Callable[[bytes], object]) -> Reply:
        """An answer read line by line; ``heard`` gets all of it so far each time."""
        connection = self.begin("POST", path, body)
        response = connection.getresponse()
        read = b""
        while line := response.readline():
            read += line
            heard(read)
        connection.close()
        return Reply(response.status, _headers(response), read)

    def get(self, path: str, **headers: str) -> Reply:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        return self.request("POST", path, body, headers)


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait for something that happens on another thread."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def lines_of(reply: Reply) -> Iterator[str]:
    yield from reply.body.decode().split("\n")
