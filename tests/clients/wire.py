# SPDX-License-Identifier: Apache-2.0
"""What goes over the wire, kept while it passes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(slots=True)
class Call:
    """One request and the status of its answer; 0 before there is one."""

    method: str
    path: str
    body: bytes = b""
    status: int = 0

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Wire:
    """All requests of one test, in the order they began."""

    calls: list[Call] = field(default_factory=list)

    def to(self, path: str) -> list[Call]:
        """The requests to one path."""
        return [call for call in self.calls if call.path == path]

    def around(self, app: ASGIApp) -> ASGIApp:
        """An application that keeps what the given one is asked."""

        async def recording(scope: Scope, receive: Receive, send: Send) -> None:
            call = Call(scope["method"], scope["path"])
            self.calls.append(call)

            async def heard() -> Message:
                message = await receive()
                call.body += message.get("body", b"")
                return message

            async def said(message: Message) -> None:
                call.status = message.get("status", call.status)
                await send(message)

            await app(scope, heard, said)

        return recording
