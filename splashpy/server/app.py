# SPDX-License-Identifier: Apache-2.0
"""The routes of the server.

A path has one handler whatever prefix clients put before it; the doubled ``/v1/v1`` is
there because people write ``/v1`` into the address of SDKs that add it themselves.
"""

from __future__ import annotations

import inspect
import json
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
    fim,
    messages,
    models,
    native,
    other_dialects,
    responses,
    tokens,
)
from splashpy.server.bodies import parse_object, read_bytes
from splashpy.server.endpoint import Endpoint
from splashpy.server.errors import ApiError
from splashpy.server.exchange import Answering, Ask
from splashpy.server.fields import Fields
from splashpy.server.gate import Gate, json_response
from splashpy.server.response_store import ResponseStore
from splashpy.version import __version__

Handler = Callable[[Request], Awaitable[Any]]
Read = Callable[
    [Fields, Endpoint], Ask | dict[str, Any] | Awaitable[Ask | dict[str, Any]]
]
"""Reads a body; what needs no engine is the answer itself."""
Row = tuple[str, tuple[str, ...], Handler]
"""Method, paths and handler."""
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
        endpoint: what all requests share.
        paths: every path without parameters that has one.
    """

    def __init__(self, endpoint: Endpoint):
        self.endpoint = endpoint
        self._store = ResponseStore()
        self.paths: set[str] = set()

    def routes(self) -> list[Route]:
        """All routes."""
        table = [*self._about(), *self._openai(), *self._anthropic(), *self._native()]
        if self.endpoint.settings.ollama:
            table += other_dialects.ollama_rows(self)
        if self.endpoint.settings.lmstudio:
            table += other_dialects.studio_rows(self)
        routes = []
        for method, paths, handler in table:
            self.paths.update(path for path in paths if "{" not in path)
            routes += [Route(path, handler, methods=[method]) for path in paths]
        return routes

    def _about(self) -> list[Row]:
        """What tells of the server itself."""
        health = ("/health", "/v1/health", "/healthz", "/ping")
        return [
            ("GET", ("/", "/index.html"), self._root),
            ("GET", health, self.showing(models.health)),
            ("GET", ("/ready", "/readyz"), self._ready),
            ("GET", ("/version",), self._version),
            ("GET", ("/openapi.json",), self._openapi),
            ("GET", ("/status", "/v1/status"), self.showing(models.status)),
            ("GET", ("/metrics",), self._metrics),
        ]

    def _openai(self) -> list[Row]:
        """OpenAI's endpoints, and Mistral's for gaps."""
        count_chat = "/v1/chat/completions/input_tokens"
        chats = self.generating("chat", chat.read)
        completing = self.generating("completions", completions.read)
        filling = self.generating("fim", fim.read)
        responding = self.generating("responses", self._read_response)
        missing = ("/v1/embeddings", "/embedding", "/embeddings", "/v1/rerank")
        return [
            ("GET", _everywhere("/models"), self.showing(models.model_list)),
            ("GET", ("/v1/models/{id:path}", "/models/{id:path}"), self._model),
            ("POST", _everywhere("/chat/completions"), chats),
            ("POST", (count_chat,), self.asking(self._count_chat)),
            ("POST", _everywhere("/responses"), responding),
            (
                "POST",
                ("/v1/responses/input_tokens",),
                self.asking(self._count_response),
            ),
            ("GET", ("/v1/responses/{id}",), self._response),
            ("DELETE", ("/v1/responses/{id}",), self._forget_response),
            ("POST", ("/v1/completions", "/completions"), completing),
            ("POST", ("/v1/fim/completions", "/fim/completions"), filling),
            ("POST", missing, self.absent("makes no embeddings and ranks nothing")),
        ]

    def _anthropic(self) -> list[Row]:
        count = self.asking(self._count_messages)
        return [
            (
                "POST",
                _everywhere("/messages"),
                self.generating("messages", messages.read),
            ),
            ("POST", _everywhere("/messages/count_tokens"), count),
        ]

    def _native(self) -> list[Row]:
        """llama.cpp's endpoints; vLLM shares two of them."""
        completing = self.generating("completion", native.read_completion)
        join = self.asking(tokens.detokenize)
        return [
            ("POST", ("/completion",), completing),
            ("POST", ("/infill",), self.generating("infill", native.read_infill)),
            ("POST", ("/tokenize", "/v1/tokenize"), self.asking(self._tokenize)),
            ("POST", ("/detokenize", "/v1/detokenize"), join),
            ("POST", ("/apply-template",), self.asking(self._apply_template)),
            ("GET", ("/props",), self.showing(models.properties)),
            ("GET", ("/slots",), self._slots),
        ]

    def generating(self, name: str, read: Read) -> Handler:
        """The handler of an endpoint that generates."""

        async def handler(request: Request) -> Any:
            endpoint = self.endpoint
            body = await self.body(request)
            await endpoint.engine.until_ready(endpoint.settings.load_seconds)
            found = read(body, endpoint)
            ask = await found if inspect.isawaitable(found) else found
            endpoint.metrics.add("ignored_fields_total", len(body.unread))
            if not isinstance(ask, Ask):
                return json_response(ask)
            return Answering(endpoint, ask, name)

        return handler

    def asking(self, answer: Asking) -> Handler:
        """The handler of an endpoint that needs no target, only the text side."""

        async def handler(request: Request) -> Any:
            endpoint = self.endpoint
            body = await self.body(request)
            await endpoint.engine.until_ready(endpoint.settings.load_seconds)
            return json_response(await answer(endpoint, body))

        return handler

    def showing(self, show: Callable[[Endpoint], Any]) -> Handler:
        """The handler of an endpoint that shows something."""

        async def handler(request: Request) -> Response:
            return json_response(show(self.endpoint))

        return handler

    def absent(self, what: str) -> Handler:
        """The handler of an endpoint there is no answer for."""

        async def handler(request: Request) -> Response:
            raise ApiError("not_supported", f"splashpy {what}")

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

    async def body(self, request: Request) -> Fields:
        """The fields of a request.

        Raises:
            ApiError: its body is no JSON object, or too large.
        """
        limit = self.endpoint.settings.max_body_bytes
        return Fields(parse_object(await read_bytes(request.receive, limit)))

    async def _root(self, request: Request) -> Response:
        # Clients of Ollama compare this text.
        name = "Ollama" if self.endpoint.settings.ollama else "splashpy"
        return PlainTextResponse(f"{name} is running")

    async def _ready(self, request: Request) -> Response:
        status, value = models.readiness(self.endpoint)
        return json_response(value, status=status)

    async def _version(self, request: Request) -> Response:
        return json_response({"version": __version__})

    async def _openapi(self, request: Request) -> Response:
        text = resources.files("splashpy.server").joinpath("openapi.json").read_bytes()
        document = json.loads(text)
        settings = self.endpoint.settings
        absent = {"Ollama"} if not settings.ollama else set()
        absent |= {"LM Studio"} if not settings.lmstudio else set()
        document["paths"] = {
            path: item
            for path, item in document["paths"].items()
            if item.get("x-dialect") not in absent
        }
        return json_response(document)

    async def _metrics(self, request: Request) -> Response:
        text = models.prometheus(self.endpoint)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _slots(self, request: Request) -> Response:
        asked = request.query_params.get("fail_on_no_slot") == "1"
        return json_response(models.slots(self.endpoint, fail_when_busy=asked))

    async def _model(self, request: Request) -> Response:
        name = request.path_params["id"]
        return json_response(models.model_entry(self.endpoint, name))


def _everywhere(path: str) -> tuple[str, ...]:
    """The path behind every prefix clients are known to put before it."""
    return (f"/v1{path}", path, f"/v1/v1{path}")
