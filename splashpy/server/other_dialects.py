# SPDX-License-Identifier: Apache-2.0
"""The routes of dialects a person has to ask for: Ollama's and LM Studio's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from splashpy.server import catalogues, chat, completions, ollama
from splashpy.server.endpoint import Endpoint
from splashpy.server.fields import Fields
from splashpy.server.gate import json_response
from splashpy.server.streaming import LINES, line

if TYPE_CHECKING:
    from splashpy.server.app import Handlers, Row

_NO_VECTORS = "makes no embeddings"
_NO_CHANGES = "serve neither makes nor removes models"


def ollama_rows(handlers: Handlers) -> list[Row]:
    """Everything below ``/api`` that Ollama's clients call."""

    async def version(request: Request) -> Response:
        return json_response({"version": catalogues.OLLAMA_VERSION})

    async def show(endpoint: Endpoint, body: Fields) -> dict[str, Any]:
        return catalogues.shown(endpoint, body)

    async def pull(request: Request) -> Response:
        body = await handlers.body(request)
        told = catalogues.pulled(handlers.endpoint, body)
        if body.flag("stream", default=True):
            return Response(line(told), media_type=LINES)
        return json_response(told)

    return [
        ("GET", ("/api/version",), version),
        ("GET", ("/api/tags",), handlers.showing(catalogues.tags)),
        ("GET", ("/api/ps",), handlers.showing(catalogues.loaded)),
        ("POST", ("/api/show",), handlers.asking(show)),
        ("POST", ("/api/pull",), pull),
        ("POST", ("/api/chat",), handlers.generating("api_chat", ollama.read_chat)),
        (
            "POST",
            ("/api/generate",),
            handlers.generating("api_generate", ollama.read_generate),
        ),
        ("POST", ("/api/embed", "/api/embeddings"), handlers.absent(_NO_VECTORS)),
        (
            "POST",
            ("/api/create", "/api/push", "/api/copy"),
            handlers.absent(_NO_CHANGES),
        ),
        ("DELETE", ("/api/delete",), handlers.absent(_NO_CHANGES)),
    ]


def studio_rows(handlers: Handlers) -> list[Row]:
    """Everything below ``/api/v0``."""

    async def entry(request: Request) -> Response:
        name = request.path_params["id"]
        return json_response(catalogues.studio_entry(handlers.endpoint, name))

    return [
        ("GET", ("/api/v0/models",), handlers.showing(catalogues.studio_list)),
        ("GET", ("/api/v0/models/{id:path}",), entry),
        (
            "POST",
            ("/api/v0/chat/completions",),
            handlers.generating("chat", chat.read),
        ),
        (
            "POST",
            ("/api/v0/completions",),
            handlers.generating("completions", completions.read),
        ),
        ("POST", ("/api/v0/embeddings",), handlers.absent(_NO_VECTORS)),
    ]
