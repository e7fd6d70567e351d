# SPDX-License-Identifier: Apache-2.0
"""An engine behind an HTTP server that already runs.

The server keeps its model: closing the client ends the requests it made and nothing
else. Every command that takes time has a thread of its own; what it brings waits in one
queue.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from splashpy.client.chunks import ChunkReader, body_of, failure_of
from splashpy.client.client import EngineClient
from splashpy.errors import (
    AuthorisationError,
    NoServerError,
    ServerError,
    SplashError,
    UsageError,
)
from splashpy.protocol import (
    PROTO,
    Cancel,
    Command,
    Count,
    Counted,
    DraftState,
    EngineHello,
    Event,
    Failure,
    Generate,
    Hello,
    Load,
    LoadProgress,
    Ping,
    Pong,
    Ready,
    Shutdown,
)
from splashpy.wire import event_from_line

_PATIENCE_SECONDS = 30.0  # for answers that take no model
_POLL_SECONDS = 0.5  # while the server loads its model
_SILENCE_SECONDS = 9.0  # a splashpy server says something every five


class HttpClient(EngineClient):
    """Talks to a splashpy server, or to any that speaks OpenAI's Chat Completions.

    Args:
        url: of the server; ``/v1`` at its end does not matter.
        key: it wants to be shown; empty: none.

    Raises:
        UsageError: this is no address of a server.
    """

    def __init__(self, url: str, *, key: str = ""):
        address = _address(url)
        self._secure, self._host = address.scheme == "https", address.hostname or ""
        self._port = address.port
        self._root = address.path.rstrip("/").removesuffix("/v1")
        self._url = url
        self._key = key
        self._model = ""
        self._native = False
        self._heard_at = time.perf_counter()
        self._arrived: queue.SimpleQueue[Event | SplashError | None] = (
            queue.SimpleQueue()
        )
        self._answers: dict[str, _Answer] = {}
        self._closed = False

    def send(self, command: Command) -> None:
        """Ask the server; what it answers arrives as events."""
        match command:
            case Hello():
                self._start(self._greet)
            case Load():
                pass  # the server has its model; the greeting told which
            case Generate():
                answer = self._answers[command.id] = _Answer(command)
                self._start(lambda: self._generate(answer))
            case Cancel():
                if command.id in self._answers:
                    self._answers[command.id].abort()
            case Count():
                self._start(lambda: self._count(command))
            case Ping():
                self._pong(command)
            case Shutdown():
                self.close()
            case _:
                text = f"a server does not take {command.op!r} from a client"
                failure = Failure(
                    id=getattr(command, "id", ""), code="E-USAGE", message=text
                )
                self._arrived.put(failure)

    def receive(self, timeout: float | None = None) -> Event | None:
        """The next event.

        Raises:
            NoServerError: nobody answers at the address.
            AuthorisationError: the server wants another key.
            EOFError: after ``close``.
        """
        try:
            arrived = self._arrived.get(timeout=timeout)
        except queue.Empty:
            return None
        if arrived is None:
            self._arrived.put(None)
            raise EOFError
        if isinstance(arrived, SplashError):
            raise arrived
        return arrived

    def close(self, *, now: bool = False) -> None:
        """End the requests that run; the server goes on."""
        self._closed = True
        for answer in list(self._answers.values()):
            answer.abort()
        self._arrived.put(None)

    # --- what is asked ------------------------------------------------------------

    def _greet(self) -> None:
        """Find out what is served; wait while it is being loaded."""
        greeted = False
        while not self._closed:
            status = self._get("/status")
            self._native = "ready" in status
            if not greeted:
                greeted = True
                version, pid = str(status.get("version", "")), status.get("pid", 0)
                self._arrived.put(EngineHello(proto=PROTO, version=version, pid=pid))
            if not self._native and status.get("state") != "loading":
                self._arrived.put(self._foreign())
                return
            ready = event_from_line(json.dumps(status.get("ready") or {"ev": ""}))
            if isinstance(ready, Ready):
                self._model = str(status["model"]["id"])
                self._arrived.put(ready)
                return
            load = status.get("load") or {}
            progress = event_from_line(json.dumps({"ev": "load", **load}))
            if isinstance(progress, LoadProgress):
                self._arrived.put(progress)
            time.sleep(_POLL_SECONDS)

    def _foreign(self) -> Ready:
        """What a server that is no splashpy says about its model."""
        found = self._get("/v1/models").get("data") or [{}]
        entry = found[0] if isinstance(found[0], dict) else {}
        self._model = str(entry.get("id", ""))
        meta = entry.get("meta") or {}
        sizes = (meta.get("n_ctx"), entry.get("max_model_len"))
        context = next((size for size in sizes if isinstance(size, int)), 0)
        reason = "the server does not tell"
        return Ready(
            model=self._model or self._url,
            context_max=context,
            block_size=1,
            draft=DraftState(state="off", reason=reason),
        )

    def _generate(self, answer: _Answer) -> None:
        command = answer.command
        reader = ChunkReader(command.id, native=self._native)
        try:
            with self._asked("/v1/chat/completions", answer) as response:
                if response.status != http.client.OK:
                    self._arrived.put(self._refused(command.id, response))
                    return
                for chunk in _chunks(response):
                    self._heard_at = time.perf_counter()
                    for event in reader.take(chunk):
                        self._arrived.put(event)
        except (OSError, http.client.HTTPException, ValueError):
            if not answer.aborted:
                raise
        finally:
            self._answers.pop(command.id, None)
        for event in reader.end(cancelled=answer.aborted):
            self._arrived.put(event)

    @contextlib.contextmanager
    def _asked(self, path: str, answer: _Answer) -> Iterator[http.client.HTTPResponse]:
        connection = self._connection(timeout=None)
        with contextlib.closing(connection):
            body = json.dumps(body_of(answer.command, self._model))
            self._heard_at = time.perf_counter()
            connection.request(
                "POST", self._root + path, body.encode("utf-8"), self._headers()
            )
            answer.use(connection)
            yield connection.getresponse()

    def _count(self, command: Count) -> None:
        body = {"model": self._model, "messages": list(command.messages)}
        path = "/v1/chat/completions/input_tokens"
        status, found = self._exchange("POST", path, body)
        if status == http.client.OK and isinstance(found.get("input_tokens"), int):
            tokens = found["input_tokens"]
            self._arrived.put(Counted(id=command.id, tokens=tokens))
        else:
            self._arrived.put(failure_of(command.id, found.get("error"), status))

    def _pong(self, command: Ping) -> None:
        """A server is alive unless an answer it owes has fallen silent."""
        silent = time.perf_counter() - self._heard_at > _SILENCE_SECONDS
        if not (self._native and self._answers and silent):
            self._arrived.put(Pong(n=command.n))

    # --- how ----------------------------------------------------------------------

    def _start(self, work: Callable[[], None]) -> None:
        threading.Thread(
            target=self._guarded, args=(work,), name="http-client", daemon=True
        ).start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except SplashError as error:
            self._arrived.put(error)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not self._closed:
                self._arrived.put(self._gone(error))
        except (AttributeError, LookupError, TypeError) as error:
            # JSON of another form than any server's; whoever waits must learn of it.
            self._arrived.put(self._unread(error))

    def _gone(self, error: Exception) -> NoServerError:
        return NoServerError(
            f"no answer from {self._url}",
            why=str(error) or type(error).__name__,
            fix=["splashpy ps", "splashpy chat --no-attach"],
        )

    def _unread(self, error: Exception) -> ServerError:
        return ServerError(
            f"{self._url} answers in a form splashpy cannot read",
            why=repr(error),
            fix=["--url names a server that speaks OpenAI's Chat Completions"],
        )

    def _connection(self, timeout: float | None) -> http.client.HTTPConnection:
        kind = http.client.HTTPConnection
        if self._secure:
            kind = http.client.HTTPSConnection
        return kind(self._host, self._port, timeout=timeout)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        return headers | ({"Authorization": f"Bearer {self._key}"} if self._key else {})

    def _get(self, path: str) -> dict[str, Any]:
        """A JSON object; empty where the server has no such page.

        Raises:
            AuthorisationError: the server wants another key.
        """
        status, found = self._exchange("GET", path)
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            raise AuthorisationError(
                f"{self._url} wants a key" if not self._key else "it is another key",
                why=f"status {status}",
                fix=["SPLASHPY_API_KEY=KEY splashpy chat …"],
            )
        return found if status == http.client.OK else {}

    def _exchange(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        data = None if body is None else json.dumps(body).encode("utf-8")
        with contextlib.closing(self._connection(_PATIENCE_SECONDS)) as connection:
            connection.request(method, self._root + path, data, self._headers())
            response = connection.getresponse()
            return response.status, _object(response.read())

    def _refused(self, request_id: str, response: http.client.HTTPResponse) -> Failure:
        error = _object(response.read()).get("error")
        return failure_of(request_id, error, response.status)


def _address(url: str) -> SplitResult:
    """The parts of an address, its port read.

    Raises:
        UsageError: this is no address of a server.
    """
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        known = parts.scheme in ("http", "https") and parts.hostname
        if known and (parts.port is None or parts.port > 0):
            return parts
    except ValueError:  # a port that is no number, half an IPv6 address
        pass
    raise UsageError(
        f"{url!r} is not the address of a server", fix=["--url http://127.0.0.1:8000"]
    )


class _Answer:
    """A request that runs, and the way to end it from another thread."""

    def __init__(self, command: Generate) -> None:
        self.command = command
        self.aborted = False
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    def use(self, connection: http.client.HTTPConnection) -> None:
        """This connection carries it."""
        with self._lock:
            self._socket = connection.sock
            if self.aborted:
                self._cut()

    def abort(self) -> None:
        """Break the connection; the server stops when it notices."""
        with self._lock:
            self.aborted = True
            self._cut()

    def _cut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def _chunks(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events, up to its end.

    Raises:
        ConnectionError: it broke off.
    """
    for line in response:
        if not line.startswith(b"data:"):
            continue
        text = line[len(b"data:") :].strip()
        if text == b"[DONE]":
            return
        yield _object(text)
    raise ConnectionError("the answer broke off")


def _object(data: bytes) -> dict[str, Any]:
    """A JSON object; empty where it is anything else."""
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
