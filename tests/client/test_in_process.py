# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny

from splashpy.client.in_process import InProcessClient
from splashpy.engine import task
from splashpy.errors import EngineDiedError, UsageError
from splashpy.protocol import (
    Done,
    Failure,
    Generate,
    Load,
    Ping,
    Pong,
    Ready,
    Sampling,
    Shutdown,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_model(tmp_path_factory.mktemp("tiny"))


def until(client: InProcessClient, *kinds: type) -> Any:
    while True:
        event = client.receive(60)
        assert event is not None
        if isinstance(event, kinds):
            return event


def test_objects_cross_in_memory(model: Path) -> None:
    with InProcessClient() as client:
        client.send(Load(model=str(model)))
        until(client, Ready)
        for name in ("first", "second"):
            client.send(Generate(id=name, prompt="hello", max_tokens=5))
            assert until(client, Done).usage.completion == 5


def test_waiting_for_nothing_returns_none() -> None:
    with InProcessClient() as client:
        assert client.receive(0.01) is None
        client.send(Ping(n=2))
        assert until(client, Pong).n == 2


def test_after_closing_the_end_is_told() -> None:
    client = InProcessClient()
    client.close()
    with pytest.raises(EOFError):
        client.receive(1)
    with pytest.raises(EngineDiedError):
        client.send(Ping())


def test_after_shutdown_the_end_is_told() -> None:
    with InProcessClient() as client:
        client.send(Shutdown())
        with pytest.raises(EOFError):
            until(client, Pong)
        with pytest.raises(EOFError):
            client.receive(1)


@pytest.mark.parametrize(
    ("fields", "needle"),
    [
        ({"sampling": Sampling(seed=1.5)}, "Sampling.seed must be int, got 1.5"),
        ({"sampling": Sampling(temperature="hot")}, "temperature must be float"),
        ({"sampling": Sampling(logit_bias={3: 1.0})}, "logit_bias must be a list"),
        ({"sampling": Sampling(stop=(5,))}, "stop must be str, got 5"),
        ({"max_tokens": "many"}, "max_tokens must be int"),
        ({"messages": ("hi",)}, "messages must be dict"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_where_it_is_sent(
    fields: dict[str, Any], needle: str, model: Path
) -> None:
    with InProcessClient() as client:
        client.send(Load(model=str(model)))
        until(client, Ready)
        with pytest.raises(UsageError, match=needle):
            client.send(Generate(**{"id": "a", "prompt": "hello", **fields}))
        client.send(Generate(id="b", prompt="hello", max_tokens=3))
        assert until(client, Done).usage.completion == 3


def test_an_engine_that_is_no_longer_sound_fails_the_request_and_the_client(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("command buffer failed")

    with InProcessClient() as client:
        client.send(Load(model=str(model)))
        until(client, Ready)
        monkeypatch.setattr(task, "launch", broken)
        client.send(Generate(id="a", prompt="hello", max_tokens=5))
        failure = until(client, Failure)
        assert failure.fatal
        assert failure.id == "a"
        assert "command buffer failed" in failure.message
        with pytest.raises(EngineDiedError, match="command buffer failed"):
            client.receive(1)
