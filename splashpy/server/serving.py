# SPDX-License-Identifier: Apache-2.0
"""The server as a running program: sockets, uvicorn, the way it ends.

The port answers before the model is loaded. Both loopback addresses are listened at,
since ``localhost`` means ``::1`` to some clients and ``127.0.0.1`` to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from splashpy.errors import PortError
from splashpy.server.access import is_loopback
from splashpy.server.app import build_app
from splashpy.server.endpoint import Endpoint

GRACE_SECONDS = 10.0  # for requests under way when the server is told to end
_FAREWELL_SECONDS = 1.0  # for telling those that did not end in time
_HEADER_SECONDS = 30.0
_BACKLOG = 64
_LARGEST_HEAD = 65536


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """Listening sockets: at both loopback addresses where the host is one of them.

    Args:
        host: a name or address; ``127.0.0.1`` and ``localhost`` mean both.
        port: 0 takes a free one.

    Raises:
        PortError: the port is taken, or the address is not of this machine.
    """
    first = _listen(host, port)
    found = [first]
    taken = first.getsockname()[1]
    other = {"127.0.0.1": "::1", "localhost": "::1", "::1": "127.0.0.1"}.get(host)
    if other is not None and is_loopback(host):
        with contextlib.suppress(PortError):  # a machine may have no IPv6
            found.append(_listen(other, taken))
    return found


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if _answers(family, host, port):
        raise _in_use(port)
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise _in_use(port) from None
        raise PortError(f"cannot listen at {host}:{port}", why=str(error)) from None
    return listener


def _answers(family: socket.AddressFamily, host: str, port: int) -> bool:
    """Whether somebody listens there already, though binding might succeed."""
    if not port:
        return False
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((host, port)) == 0


def _in_use(port: int) -> PortError:
    return PortError(
        f"port {port} is in use",
        why="another program listens there",
        fix=["splashpy ps", f"splashpy serve --port {port + 1}"],
    )


class HttpServer:
    """One server from its first socket to its last request.

    Args:
        endpoint: what requests share.
        sockets: from :func:`open_sockets`.
        failed: told of an exception nobody expected.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        sockets: list[socket.socket],
        failed: Callable[[Exception], None] = lambda error: None,
    ):
        self._endpoint = endpoint
        self._sockets = sockets
        config = uvicorn.Config(
            build_app(endpoint, failed),
            http=TimedProtocol,
            loop="asyncio",
            lifespan="off",
            ws="none",
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=int(GRACE_SECONDS + _FAREWELL_SECONDS),
            h11_max_incomplete_event_size=_LARGEST_HEAD,
            backlog=_BACKLOG,
        )
        self._server = _Server(config)

    @property
    def port(self) -> int:
        """The port it listens at."""
        return self._sockets[0].getsockname()[1]

    async def run(self) -> None:
        """Answer until ``stop``; what has begun then gets ten seconds to end."""
        await self._server.serve(sockets=self._sockets)

    def stop(self) -> None:
        """Admit nothing more and end; called on the event loop, also repeatedly."""
        if self._endpoint.draining:
            return
        self._endpoint.draining = True
        self._endpoint.engine.drain()
        loop = asyncio.get_running_loop()
        loop.call_later(GRACE_SECONDS, self._endpoint.engine.end_all)
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn without its own ideas about signals."""

    @contextlib.contextmanager
    def capture_signals(self):
        yield


class TimedProtocol(H11Protocol):
    """HTTP/1.1 that does not wait forever for the head of a request."""

    _head_timer: asyncio.TimerHandle | None = None

    @property
    def _between(self) -> bool:
        """Whether the next bytes belong to the head of a request."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Wait for the first head, but not forever."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(_HEADER_SECONDS, self._give_up)

    def data_received(self, data: bytes) -> None:
        """Take bytes; a head that has begun must come to its end."""
        if self._between and self._head_timer is None:
            self._head_timer = self.loop.call_later(_HEADER_SECONDS, self._give_up)
        super().data_received(data)
        if not self._between:
            self._forget_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there to wait for."""
        self._forget_timer()
        super().connection_lost(exc)

    def _forget_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
