# SPDX-License-Identifier: Apache-2.0
"""The description of the server says what the server has, and nothing else."""

from __future__ import annotations

from server_kit import Running

from splashpy.server.app import Handlers
from splashpy.server.endpoint import Endpoint


def test_every_route_is_described_and_every_description_is_a_route(
    server: Running,
) -> None:
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
    }
    assert described == built
    assert document["openapi"].startswith("3.1")


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
