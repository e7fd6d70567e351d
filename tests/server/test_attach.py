# SPDX-License-Identifier: Apache-2.0
"""An interface attached to a running server sees what its own engine would say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from scripted_engine import Script
from server_kit import Running

from splashpy.client.http import HttpClient
from splashpy.errors import NoServerError
from splashpy.protocol import (
    Cancel,
    Count,
    Counted,
    Cycle,
    Done,
    EngineHello,
    Event,
    Failure,
    Generate,
    Hello,
    Prefill,
    Ready,
    Unload,
)

PATIENCE_SECONDS = 30.0
ASKED = ({"role": "user", "content": "Say something."},)


@pytest.fixture
def client(server: Running) -> Iterator[HttpClient]:
    with HttpClient(f"{server.url}/v1") as client:
        client.send(Hello())
        until(client, lambda event: isinstance(event, Ready))
        yield client


def until(client: HttpClient, last: Callable[[Event], bool]) -> list[Event]:
    """The events up to one."""
    found = []
    while not found or not last(found[-1]):
        event = client.receive(PATIENCE_SECONDS)
        assert event is not None, found
        found.append(event)
    return found


def test_it_learns_which_model_is_served(server: Running) -> None:
    with HttpClient(server.url.removeprefix("http://")) as client:
        client.send(Hello())
        greeting, ready = until(client, lambda event: isinstance(event, Ready))
    assert isinstance(greeting, EngineHello)
    assert isinstance(ready, Ready)
    assert server.endpoint.engine.facts is not None
    assert ready.context_max == server.endpoint.engine.facts.context_max


def test_an_answer_comes_as_the_engines_own_events(
    client: HttpClient, script: Script
) -> None:
    script.say("Hello there.<|im_end|>")
    client.send(Generate(id="one", messages=ASKED))
    events = until(client, lambda event: isinstance(event, Done))
    cycles = [event for event in events if isinstance(event, Cycle)]
    done = events[-1]
    assert isinstance(done, Done)
    assert {event.id for event in cycles} == {"one"}
    text = "".join(piece.text for cycle in cycles for piece in cycle.pieces)
    assert text == "Hello there."
    assert sum(cycle.committed for cycle in cycles) == done.usage.completion
    assert [event for event in events if isinstance(event, Prefill)]
    assert done.reason == "stop"


def test_cancelling_ends_the_request_at_the_server(
    client: HttpClient, server: Running, script: Script
) -> None:
    hold = threading.Event()
    script.say("begun", lambda: hold.wait(PATIENCE_SECONDS), "never<|im_end|>")
    client.send(Generate(id="one", messages=ASKED))
    until(client, lambda event: isinstance(event, Cycle))
    client.send(Cancel(id="one"))
    (*_, done) = until(client, lambda event: isinstance(event, Done))
    hold.set()
    assert isinstance(done, Done)
    assert done.reason == "cancelled"


def test_a_prompt_that_is_too_long_fails_with_the_code_of_the_context(
    client: HttpClient,
) -> None:
    long = ({"role": "user", "content": "word " * 100_000},)
    client.send(Generate(id="one", messages=long))
    (*_, failure) = until(client, lambda event: isinstance(event, Failure))
    assert isinstance(failure, Failure)
    assert (failure.id, failure.code) == ("one", "E-CONTEXT")


def test_tokens_are_counted(client: HttpClient) -> None:
    client.send(Count(id="c", messages=ASKED))
    (*_, counted) = until(client, lambda event: isinstance(event, Counted))
    assert isinstance(counted, Counted)
    assert counted.tokens > 0


def test_the_model_of_a_server_is_not_unloaded_by_a_client(client: HttpClient) -> None:
    client.send(Unload())
    (refused,) = until(client, lambda event: isinstance(event, Failure))
    assert isinstance(refused, Failure)
    assert "unload" in refused.message


def test_nobody_at_the_address_is_an_error_that_names_it(server: Running) -> None:
    with HttpClient("http://127.0.0.1:9") as client:
        client.send(Hello())
        with pytest.raises(NoServerError, match=r"127\.0\.0\.1:9"):
            client.receive(PATIENCE_SECONDS)
