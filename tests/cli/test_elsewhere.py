# SPDX-License-Identifier: Apache-2.0
"""``splashpy show`` of models that only the Hub has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from commandline import Call
from package.hub_server import COMMIT, HubServer, Repository

SIZES = {"hidden_size": 5120, "num_hidden_layers": 64, "vocab_size": 248320}
CONFIG = {
    "model_type": "qwen3_5",
    "text_config": {**SIZES, "max_position_embeddings": 262144},
}


def offer(server: HubServer, name: str, path: str, config: dict[str, Any]) -> None:
    """Let the Hub have a model with this configuration."""
    files = {path: json.dumps(config).encode(), "model.safetensors": bytes(2048)}
    server.repositories[name] = Repository(files)


def test_sizes_licence_and_drafters_are_told_before_a_weight_is_fetched(
    call: Call, server: HubServer
) -> None:
    offer(server, "some/hybrid", "config.json", CONFIG)
    result = call("show", "some/hybrid")

    assert result.code == 0
    facts = dict(line.split(maxsplit=1) for line in reversed(result.out.splitlines()))
    assert facts["licence"] == "apache-2.0"
    assert (facts["layers"], facts["context_max"]) == ("64", "256K")
    assert facts["drafter"].startswith(
        "incoai/Qwen3.8-27B-DFlash2 (DFlash 2, Apache-2.0), made for Qwen3.8-27B: also "
        "qwen3_5 of width 5120 with 64 layers and 248320 tokens"
    )
    assert "splashpy pull some/hybrid" in result.err
    assert call("list", "-q").out == ""
    assert not any("safetensors" in path for _, path, _ in server.requests)


def test_json_has_the_fields_of_an_installed_model_without_a_path(
    call: Call, server: HubServer
) -> None:
    offer(server, "some/hybrid", "config.json", CONFIG)
    document = call("show", "some/hybrid", "--json").json

    assert document["schema"] == "splashpy.show/1"
    assert (document["path"], document["revision"]) == (None, COMMIT)
    assert document["context_max"] == 262144
    assert document["files"]["model.safetensors"] == 2048
    assert len(document["published_drafters"]) == 2


def test_a_short_name_means_its_repository(call: Call, server: HubServer) -> None:
    names = ("manifest.json", "target/head.bin", "draft/model.bin")
    files = dict.fromkeys(names, b"{}")
    files["tokenizer/config.json"] = json.dumps(CONFIG).encode()
    server.repositories["incoai/Qwen3.8-27B-Splash"] = Repository(files)
    document = call("show", "qwen3.8-27b", "--json").json
    assert (document["layers"], document["vocabulary"]) == (64, 248320)


def test_a_configuration_without_sizes_leaves_them_out(
    call: Call, server: HubServer
) -> None:
    offer(server, "some/other", "config.json", {"model_type": "whatever"})
    document = call("show", "some/other", "--json").json
    assert document["hidden_size"] is None
    assert document["published_drafters"] == []
    assert call("show", "some/other").code == 0


def test_a_repository_nobody_has_is_an_unknown_model(
    call: Call, server: HubServer
) -> None:
    result = call("show", "no/such")
    assert result.code == 3
    assert "the Hub has no repository no/such" in result.err


@pytest.mark.parametrize("flag", ["--offline", "--quiet"])
def test_the_hub_is_not_asked_offline_or_for_a_directory(
    call: Call, server: HubServer, flag: str
) -> None:
    offer(server, "some/hybrid", "config.json", CONFIG)
    result = call("show", "some/hybrid", flag)
    assert result.code == 3
    assert "some/hybrid is not installed" in result.err
    assert server.requests == []
