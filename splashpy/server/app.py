# SPDX-License-Identifier: Apache-2.0
"""The routes of the server.

A path has one handler whatever prefix clients put before it; the doubled ``/v1/v1`` is
there because people write ``/v1`` into the address of SDKs that add it themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from splashpy.protocol import Counted
from splashpy.server import (
    chat,
    completions,
    messages,
    models,
    native,
    responses,
    tokens,
)
from splashpy.server.bodies import parse_object, read_bytes
from splashpy.server.endpoint import Endpoint
from splashpy.server.errors import ApiError
from splashpy.server.exchange import Answering, Ask
from splashpy.server.fields import Fields
from splashpy.server.gate import Gate, json_response
from splashpy.version import __version__

Handler = Callable[[Request], Awaitable[Any]]
Read = Callable[[Fields, Endpoint], Ask]
Asking = Callable[[Endpoint, Fields], Awaitable[Any]]


def build_app(
    endpoint: Endpoint, failed: Callable[[Exception], None] = lambda error: None
) -> ASGIApp:
    """The application of a server.

    Args:
        endpoint: what all requests share.
        failed: told of an exception nobody expected.
    """
    handlers = Handlers(endpoint)
    # A bare router: whatever a handler raises, the gate turns into an answer.
    app = Router(handlers.routes(), redirect_slashes=False)

    def report(path: str, status: int) -> None:
        known = path if path in handlers.paths else "other"
        endpoint.metrics.add("http_responses_total", endpoint=known, status=str(status))

    return Gate(app, endpoint.settings, report, failed)


class Handlers:
    """The handlers of one server.

    Attributes:
        paths: every path without parameters that has one.
    """

    def __init__(self, endpoint: Endpoint):
        self._endpoint = endpoint
        self._store = responses.ResponseStore()
        self.paths: set[str] = set()

    def routes(self) -> list[Route]:
        """All routes."""
        table: list[tuple[str, tuple[str, ...], Handler]] = [
            ("GET", ("/", "/index.html"), self._root),
            ("GET", ("/health", "/v1/health", "/healthz", "/ping"), self._health),
            ("GET", ("/ready", "/readyz"), self._ready),
            ("GET", ("/version",), self._version),
            ("GET", ("/openapi.json",), self._openapi),
            ("GET", ("/status", "/v1/status"), self._status),
            ("GET", ("/metrics",), self._metrics),
            ("GET", ("/props",), self._props),
            ("GET", ("/slots",), self._slots),
            ("GET", ("/v1/models", "/models", "/v1/v1/models"), self._models),
            ("GET", ("/v1/models/{id:path}", "/models/{id:path}"), self._model),
            (
                "POST",
                (
                    "/v1/chat/completions",
                    "/chat/completions",
                    "/v1/v1/chat/completions",
                ),
                self._generating("chat", chat.read),
            ),
            (
                "POST",
                ("/v1/responses", "/responses", "/v1/v1/responses"),
                self._generating("responses", self._read_response),
            ),
            (
                "POST",
                ("/v1/responses/input_tokens",),
                self._asking(self._count_response),
            ),
            ("GET", ("/v1/responses/{id}",), self._response),
            ("DELETE", ("/v1/responses/{id}",), self._forget_response),
            (
                "POST",
                ("/v1/completions", "/completions"),
                self._generating("completions", completions.read),
            ),
            (
                "POST",
                ("/completion",),
                self._generating("completion", native.read_completion),
            ),
            (
                "POST",
                ("/infill",),
                self._generating("infill", native.read_infill),
            ),
            (
                "POST",
                ("/v1/messages", "/messages", "/v1/v1/messages"),
                self._generating("messages", messages.read),
            ),
            (
                "POST",
                (
                    "/v1/messages/count_tokens",
                    "/messages/count_tokens",
                    "/v1/v1/messages/count_tokens",
                ),
                self._asking(self._count_messages),
            ),
            (
                "POST",
                ("/v1/chat/completions/input_tokens",),
                self._asking(self._count_chat),
            ),
            ("POST", ("/tokenize", "/v1/tokenize"), self._asking(self._tokenize)),
            (
                "POST",
                ("/detokenize", "/v1/detokenize"),
                self._asking(tokens.detokenize),
            ),
            ("POST", ("/apply-template",), self._asking(self._apply_template)),
            (
                "POST",
                ("/v1/embeddings", "/embedding", "/embeddings", "/v1/rerank"),
                self._absent,
            ),
        ]
        routes = []
        for method, paths, handler in table:
            self.paths.update(path for path in paths if "{" not in path)
            routes += [Route(path, handler, methods=[method]) for path in paths]
        return routes

    def _generating(self, name: str, read: Read) -> Handler:
        """The handler of an endpoint that generates."""

        async def handler(request: Request) -> Any:
            endpoint = self._endpoint
            body = await self._body(request)
            await endpoint.engine.until_ready(endpoint.settings.load_seconds)
            ask = read(body, endpoint)
            endpoint.metrics.add("ignored_fields_total", len(body.unread))
            return Answering(endpoint, ask, name)

        return handler

    def _asking(self, answer: Asking) -> Handler:
        """The handler of an endpoint that needs no target, only the text side."""

        async def handler(request: Request) -> Any:
            endpoint = self._endpoint
            body = await self._body(request)
            await endpoint.engine.until_ready(endpoint.settings.load_seconds)
            return json_response(await answer(endpoint, body))

        return handler

    def _read_response(self, body: Fields, endpoint: Endpoint) -> Ask:
        return responses.read(body, endpoint, self._store)

    async def _count_response(self, endpoint: Endpoint, body: Fields) -> Any:
        command = responses.read_command(body, endpoint, self._store)
        found = await tokens.counted(endpoint, command)
        return {"object": "response.input_tokens", "input_tokens": found.tokens}

    async def _response(self, request: Request) -> Response:
        return json_response(self._store.get(request.path_params["id"]))

    async def _forget_response(self, request: Request) -> Response:
        return json_response(self._store.delete(request.path_params["id"]))

    async def _count_chat(self, endpoint: Endpoint, body: Fields) -> Any:
        found = await tokens.counted(endpoint, chat.read_command(body, endpoint))
        return {"object": "response.input_tokens", "input_tokens": found.tokens}

    async def _count_messages(self, endpoint: Endpoint, body: Fields) -> Any:
        found = await tokens.counted(endpoint, messages.read_command(body, endpoint))
        return {"input_tokens": found.tokens}

    async def _tokenize(self, endpoint: Endpoint, body: Fields) -> Any:
        if not body.has("messages"):
            return await tokens.tokenize(endpoint, body)
        found = await self._rendered(endpoint, body)
        return tokens.conversation_tokens(endpoint, found)

    async def _apply_template(self, endpoint: Endpoint, body: Fields) -> Any:
        found = await self._rendered(endpoint, body)
        return {"prompt": found.text, "prompt_tokens": found.tokens}

    async def _rendered(self, endpoint: Endpoint, body: Fields) -> Counted:
        command = chat.read_command(body, endpoint)
        opened = body.flag("add_generation_prompt", default=True)
        return await tokens.counted(
            endpoint, command, detail=True, generation_prompt=opened
        )

    async def _body(self, request: Request) -> Fields:
        limit = self._endpoint.settings.max_body_bytes
        return Fields(parse_object(await read_bytes(request.receive, limit)))

    async def _root(self, request: Request) -> Response:
        return PlainTextResponse("splashpy is running")

    async def _health(self, request: Request) -> Response:
        return json_response(models.health(self._endpoint))

    async def _ready(self, request: Request) -> Response:
        status, value = models.readiness(self._endpoint)
        return json_response(value, status=status)

    async def _version(self, request: Request) -> Response:
        return json_response({"version": __version__})

    async def _openapi(self, request: Request) -> Response:
        text = resources.files("splashpy.server").joinpath("openapi.json").read_bytes()
        return Response(text, media_type="application/json")

    async def _status(self, request: Request) -> Response:
        return json_response(models.status(self._endpoint))

    async def _metrics(self, request: Request) -> Response:
        text = models.prometheus(self._endpoint)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _props(self, request: Request) -> Response:
        return json_response(models.properties(self._endpoint))

    async def _slots(self, request: Request) -> Response:
        asked = request.query_params.get("fail_on_no_slot") == "1"
        return json_response(models.slots(self._endpoint, fail_when_busy=asked))

    async def _models(self, request: Request) -> Response:
        return json_response(models.model_list(self._endpoint))

    async def _model(self, request: Request) -> Response:
        name = request.path_params["id"]
        return json_response(models.model_entry(self._endpoint, name))

    async def _absent(self, request: Request) -> Response:
        raise ApiError(
            "not_supported", "splashpy makes no embeddings and ranks nothing"
        )
