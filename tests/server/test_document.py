# SPDX-License-Identifier: Apache-2.0
"""The description of the server says what the server has, and nothing else."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from server_kit import Running

from splashpy.server.app import Handlers
from splashpy.server.endpoint import Endpoint


def test_every_route_is_described_and_every_description_is_a_route(
    serve: Any,
) -> None:
    server = serve(ollama=True, lmstudio=True)
    endpoint: Endpoint = server.endpoint
    routes = Handlers(endpoint).routes()
    built = {
        (route.path.replace("{id:path}", "{id}"), method)
        for route in routes
        for method in route.methods or ()
        if method != "HEAD"
    }

    document = server.get("/openapi.json").json

    described = {
        (path, method.upper())
        for path, item in document["paths"].items()
        for method in item
        if not method.startswith("x-")
    }
    assert described == built
    assert document["openapi"].startswith("3.1")
    text = resources.files("splashpy.server").joinpath("openapi.json").read_bytes()
    assert document == json.loads(text)


def test_paths_with_the_same_handler_are_described_alike() -> None:
    text = resources.files("splashpy.server").joinpath("openapi.json").read_bytes()
    paths = json.loads(text)["paths"]

    def described(path: str) -> dict[str, Any]:
        item = paths[path]
        return {name: item[name] for name in item if not name.startswith("x-")}

    same = [path for path, item in paths.items() if "x-same-as" in item]
    assert len(same) > 10
    for path in same:
        assert described(path) == described(paths[path]["x-same-as"]), path


def test_a_stream_of_events_is_described_by_one_of_its_events() -> None:
    text = resources.files("splashpy.server").joinpath("openapi.json").read_bytes()
    described = [
        content["text/event-stream"]["schema"]
        for item in json.loads(text)["paths"].values()
        for operation in item.values()
        if isinstance(operation, dict)
        for content in [operation["responses"].get("200", {}).get("content", {})]
        if "text/event-stream" in content
    ]

    assert len(described) > 10
    for schema in described:
        assert schema == {"$ref": "#/components/schemas/ServerSentEvent"}


def test_a_dialect_that_is_off_is_not_described(server: Running) -> None:
    routes = Handlers(server.endpoint).routes()

    described = server.get("/openapi.json").json["paths"]

    built = {route.path.replace("{id:path}", "{id}") for route in routes}
    assert set(described) == built
    assert not any(path.startswith("/api/") for path in described)


def test_metrics_are_in_prometheus_format(server: Running) -> None:
    server.post("/v1/chat/completions", {"messages": [{"role": "user"}]})

    reply = server.get("/metrics")

    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    names = set()
    for line in reply.body.decode().splitlines():
        if line.startswith("# TYPE "):
            names.add(line.split()[2])
        elif not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            float(value)
            base = name.split("{")[0]
            family = {base.removesuffix(s) for s in ("_bucket", "_sum", "_count")}
            assert family & names, name
    assert "splashpy_spec_decode_num_accepted_tokens_total" in names


def test_properties_are_what_editors_look_for(server: Running) -> None:
    properties = server.get("/props?model=x&autoload=false").json

    assert properties["default_generation_settings"]["n_ctx"] == 4096
    assert properties["eos_token"] == "<|im_end|>"
    assert "<tool_call>" in properties["chat_template"]
    (slot,) = server.get("/slots").json
    assert slot == {"id": 0, "n_ctx": 4096, "is_processing": False}
    (entry, _) = server.get("/v1/models?limit=1000").json["data"]
    assert entry["context_length"] == entry["meta"]["n_ctx"] == 4096
    assert entry["max_input_tokens"] == 4095
    assert entry["capabilities"] == ["completion", "tools", "thinking", "insert"]


def test_status_and_metrics_say_how_many_requests_run_at_a_time(
    server: Running,
) -> None:
    queue = server.get("/status").json["queue"]
    assert (queue["lanes"], queue["running"]) == (1, 0)
    assert b"splashpy_lanes 1" in server.get("/metrics").body
