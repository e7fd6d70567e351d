# SPDX-License-Identifier: Apache-2.0
"""A model nobody asks for is unloaded, and loaded by the next request."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_engine import Said, Script
from server_kit import PATIENCE, Mortal, Running, until

from splashpy.errors import CapacityError
from splashpy.host import host as host_module

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hi"}]}

Mortals = Callable[..., tuple[Running, list[Mortal]]]


def state_of(server: Running) -> str:
    return server.get("/status").json["state"]


def test_an_idle_model_is_unloaded_and_comes_back_with_the_next_request(
    mortal: Mortals,
) -> None:
    server, lives = mortal(idle_seconds=0.05)
    until(lambda: state_of(server) == "unloaded")

    assert server.get("/health").json == {"status": "ok"}
    assert server.get("/ready").status == 200
    assert server.get("/props").json["is_sleeping"] is True
    assert server.get("/v1/models").json["data"][0]["context_window"] == 4096
    metrics = server.get("/metrics").body.decode()
    assert "splashpy_model_loaded 0\n" in metrics
    assert "splashpy_model_unloads_total 1\n" in metrics
    assert len(lives) == 1  # looking wakes nobody

    assert server.post(CHAT, BODY).status == 200
    assert server.post(f"{CHAT}/input_tokens", BODY).status == 200
    until(lambda: state_of(server) == "unloaded")
    assert server.log[0].startswith("nothing to do; the model is unloaded")
    assert server.get("/status").json["engine"]["restarts"] == 0


def test_a_request_that_takes_longer_than_the_rest_is_not_idle(
    mortal: Mortals, script: Script
) -> None:
    server, _ = mortal(idle_seconds=0.05)
    free = threading.Event()
    script.answers = [Said((lambda: free.wait(PATIENCE), "</think>ok<|im_end|>"))]
    request = server.begin("POST", CHAT, BODY)
    engine = server.endpoint.engine
    until(lambda: any(one.begun for one in engine._running.values()))
    unloads = engine.unloads
    ticks: list[None] = []
    server.loop.call_soon_threadsafe(
        server.loop.call_later, 0.2, lambda: ticks.append(None)
    )
    until(lambda: bool(ticks))  # the loop had its chance

    assert engine.unloads == unloads
    free.set()
    assert request.getresponse().status == 200
    request.close()


def test_without_the_wish_a_model_stays(mortal: Mortals) -> None:
    server, _ = mortal()
    assert server.endpoint.engine._rest_ends is None
    assert server.post(CHAT, BODY).status == 200
    assert server.endpoint.engine._rest_ends is None


def test_a_model_that_waits_for_memory_may_be_asked_for_again(
    mortal: Mortals, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = mortal(idle_seconds=0.05)
    until(lambda: state_of(server) == "unloaded")

    def refuse(path: Path) -> None:
        raise CapacityError("this needs 9.0 GB, 8.0 GB may be used")

    with monkeypatch.context() as patch:
        patch.setattr(host_module.ModelDirectory, "open", refuse)
        refused = server.post(CHAT, BODY)
        until(lambda: state_of(server) == "unloaded")
        ready = server.get("/ready")

    assert (refused.status, refused.headers["retry-after"]) == (503, "2")
    assert refused.json["error"]["code"] == "insufficient_memory"
    assert "9.0 GB" in refused.json["error"]["message"]
    assert (ready.status, ready.json["reason"]) == (503, "memory")
    assert server.post(CHAT, BODY).status == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_model_that_cannot_be_loaded_again_is_tried_by_every_request(
    mortal: Mortals, speaker: Path, tmp_path: Path, *, stream: bool
) -> None:
    model = tmp_path / "model"
    shutil.copytree(speaker, model)
    server, _ = mortal(model, idle_seconds=0.05)
    until(lambda: state_of(server) == "unloaded")
    (model / "config.json").rename(tmp_path / "config.json")

    refused = server.post(CHAT, {**BODY, "stream": stream})

    assert refused.status == 503
    assert refused.json["error"]["code"] == "engine_failed"
    assert "cannot be loaded again" in refused.json["error"]["message"]
    assert server.get("/health").status == 503
    (tmp_path / "config.json").rename(model / "config.json")
    assert server.post(CHAT, {**BODY, "stream": stream}).status == 200
    assert server.get("/health").status == 200
