# SPDX-License-Identifier: Apache-2.0
"""What every request passes before its handler: path, host, origin, key, content type.

Nothing of a body is read before these checks. Errors of handlers become answers here,
in the shape of the dialect the path belongs to, and every answer gets its request id.
"""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from splashpy.server import access
from splashpy.server.bodies import DisconnectedError, too_large
from splashpy.server.errors import ApiError, Dialect, bug, to_json
from splashpy.server.settings import ServerSettings

_HEALTH = ("/health", "/v1/health", "/healthz", "/ping")
PUBLIC = frozenset(
    ("/", "/index.html", *_HEALTH, "/ready", "/readyz", "/version", "/api/version")
)
_NATIVE = ("/completion", "/infill", "/tokenize", "/detokenize", "/apply-template")
_NATIVE += ("/props", "/slots", *_HEALTH)
_CLOSING = ("request_too_large", "upload_timeout", "ambiguous_length")
_EXPOSED = "Retry-After, WWW-Authenticate, x-request-id"
_METHODS = "GET, HEAD, POST, DELETE, OPTIONS"

Report = Callable[[str, int], None]
"""Told of every answer: its path and status."""


def canonical_path(path: str) -> str:
    """The path without doubled slashes, dots and a trailing slash."""
    clean = posixpath.normpath("/" + path.lstrip("/"))
    return "/" + clean.lstrip("/")


def dialect_of(path: str) -> Dialect:
    """Whose error shapes a path answers with."""
    if "/messages" in path:
        return Dialect.ANTHROPIC
    if is_ollama(path):
        return Dialect.OLLAMA
    return Dialect.NATIVE if path in _NATIVE else Dialect.OPENAI


def is_ollama(path: str) -> bool:
    """Whether a path is Ollama's own; LM Studio's begin the same way."""
    return path.startswith("/api/") and not path.startswith("/api/v0/")


class Gate:
    """Wraps the application.

    Args:
        app: the application.
        settings: of the server.
        report: told of every answer.
        failed: told of an exception nobody expected.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        report: Report = lambda path, status: None,
        failed: Callable[[Exception], None] = lambda error: None,
    ):
        self._app = app
        self._settings = settings
        self._report = report
        self._failed = failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event of ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["path"] = canonical_path(scope["path"])
        scope["app"] = self._app  # tells the router to raise where nothing fits
        passage = _Passage(scope, send, self._report)
        try:
            if self._preflight(passage):
                response = _allowed_methods(passage)
                await response(scope, receive, passage.send)
                return
            await self._app(scope, receive, passage.send)
        except ApiError as error:
            await passage.refuse(error, receive)
        except HTTPException as error:
            await passage.refuse(_routing_error(scope, error), receive)
        except DisconnectedError:
            return
        except Exception as error:  # noqa: BLE001 - one request must not end the server
            self._failed(error)
            await passage.refuse(bug(), receive)

    def _preflight(self, passage: _Passage) -> bool:
        """Check a request; whether it only asks what it may do.

        Raises:
            ApiError: it may not pass.
        """
        settings, headers, scope = self._settings, passage.headers, passage.scope
        if "content-length" in headers and "transfer-encoding" in headers:
            # Whoever stands between may see another end of this request than we do.
            raise ApiError("ambiguous_length", "the length of the body is stated twice")
        server = scope.get("server") or ("", 0)
        access.check_host(
            headers.get("host"),
            local_address=str(server[0]).lower(),
            allowed=settings.hosts,
            bound_to=settings.bound_to,
        )
        access.check_origin(
            headers.get("origin"),
            headers.get("host", ""),
            headers.get("sec-fetch-site", ""),
            settings.origins,
        )
        passage.admit_origin(settings.origins)
        if scope["method"] == "OPTIONS":
            return True
        if scope["path"] not in PUBLIC:
            access.check_key(headers, settings.key)
        if scope["method"] == "POST":
            _check_body(scope["path"], headers, settings.max_body_bytes)
        return False


class _Passage:
    """One request on its way through the gate."""

    def __init__(self, scope: Scope, send: Send, report: Report):
        self.scope = scope
        self.headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        self.dialect = dialect_of(scope["path"])
        self.request_id = f"req_{secrets.token_hex(12)}"
        scope.setdefault("state", {})["request_id"] = self.request_id
        self._send = send
        self._report = report
        self._started = False
        self._extra: list[tuple[bytes, bytes]] = []
        self._add("x-request-id", self.request_id)
        if self.dialect is Dialect.ANTHROPIC:
            self._add("request-id", self.request_id)

    def admit_origin(self, allowed: Iterable[str]) -> None:
        """Tell the browser that this page may read the answer."""
        origin = self.headers.get("origin")
        if origin is None:
            return
        every = "*" in set(allowed)
        self._add("access-control-allow-origin", "*" if every else origin)
        self._add("vary", "Origin")
        self._add("access-control-expose-headers", _EXPOSED)

    async def send(self, message: Message) -> None:
        """Pass an answer on, with the headers every answer has."""
        if message["type"] == "http.response.start":
            self._started = True
            self._report(self.scope["path"], message["status"])
            headers = [*message.get("headers", ()), *self._extra]
            message = {**message, "headers": headers}
        await self._send(message)

    async def refuse(self, error: ApiError, receive: Receive) -> None:
        """Answer with an error, unless an answer has begun."""
        if self._started:
            return  # the stream has told of it, as far as it could
        headers = dict(error.fault.headers)
        if error.code in _CLOSING:
            headers["connection"] = "close"  # the rest of the body is not read
        response = json_response(
            error.fields(self.dialect, self.request_id),
            status=error.status(self.dialect),
            headers=headers,
        )
        await response(self.scope, receive, self.send)

    def _add(self, name: str, value: str) -> None:
        self._extra.append((name.encode("latin-1"), value.encode("latin-1")))


def json_response(
    value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer of compact JSON."""
    return Response(
        to_json(value),
        status_code=status,
        headers=dict(headers or {}),
        media_type="application/json",
    )


def _check_body(path: str, headers: Mapping[str, str], limit: int) -> None:
    """Refuse a body before it is read, where its headers say enough.

    Raises:
        ApiError: of the wrong type, too large, or of unknown length.
    """
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise ApiError(
            "unsupported_media_type", f"bodies encoded with {encoding} are not read"
        )
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )
    # What Ollama documents posts forms; a browser would show itself.
    browser = "origin" in headers or "sec-fetch-site" in headers
    if not is_json and (browser or not is_ollama(path)):
        raise ApiError(
            "unsupported_media_type",
            f"the content type must be application/json, not {kind or 'absent'}",
        )
    length = headers.get("content-length")
    if length is None and "transfer-encoding" not in headers:
        raise ApiError("length_required", "a body needs a Content-Length")
    if length is not None and length.isdigit() and int(length) > limit:
        raise too_large(limit)


def _allowed_methods(passage: _Passage) -> Response:
    """The answer to OPTIONS: to a browser that asks first, and to anybody else."""
    headers = {"allow": _METHODS}
    if "origin" in passage.headers:
        headers = {
            "access-control-allow-methods": _METHODS,
            "access-control-max-age": "600",
        }
        asked = passage.headers.get("access-control-request-headers")
        if asked:
            headers["access-control-allow-headers"] = asked
        if passage.headers.get("access-control-request-private-network") == "true":
            headers["access-control-allow-private-network"] = "true"
    return Response(status_code=204, headers=headers)


def _routing_error(scope: Scope, error: HTTPException) -> ApiError:
    if error.status_code == 405:
        message = f"{scope['path']} does not take {scope['method']}"
        found = ApiError("method_not_allowed", message)
        found.fault = replace(found.fault, headers=dict(error.headers or {}))
        return found
    return ApiError("not_found", f"there is no {scope['path']} here")
