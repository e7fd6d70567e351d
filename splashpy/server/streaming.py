# SPDX-License-Identifier: Apache-2.0
"""Server-sent events, and a response that stops when its reader leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from starlette.types import Receive, Scope, Send

from splashpy.server.errors import to_json

EVENTS = "text/event-stream; charset=utf-8"
LINES = "application/x-ndjson"
_HEADERS = (
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_DRAIN_SECONDS = 60.0  # a reader that takes nothing for so long is gone
DONE = b"data: [DONE]\n\n"


def data(value: Any) -> bytes:
    """One event without a name."""
    return b"data: " + to_json(value) + b"\n\n"


def event(value: dict[str, Any]) -> bytes:
    """One event named by its own ``type``."""
    return b"event: " + value["type"].encode() + b"\n" + data(value)


def line(value: Any) -> bytes:
    """One line of a stream of JSON objects."""
    return to_json(value) + b"\n"


class EventStream:
    """An answer that grows; its source is closed when the client leaves.

    Args:
        source: the bytes of whole events.
        media: what they are.
    """

    def __init__(self, source: AsyncIterator[bytes], media: str = EVENTS):
        self._source = source
        self._headers = ((b"content-type", media.encode()), *_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, or stop at a disconnect."""
        writer = asyncio.ensure_future(self._write(send))
        watcher = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({writer, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if writer.done():
                writer.result()
        finally:
            for task in (writer, watcher):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
            await self._source.aclose()  # type: ignore[attr-defined]

    async def _write(self, send: Send) -> None:
        start = {
            "type": "http.response.start",
            "status": 200,
            "headers": self._headers,
        }
        await send(start)
        with contextlib.suppress(OSError, TimeoutError):  # nobody reads any more
            async for chunk in self._source:
                body = {"type": "http.response.body", "body": chunk, "more_body": True}
                async with asyncio.timeout(_DRAIN_SECONDS):
                    await send(body)
            await send({"type": "http.response.body", "body": b""})


async def disconnected(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
