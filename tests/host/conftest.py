# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import queue
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny

from splashpy.host.host import Host
from splashpy.protocol import (
    Command,
    Cycle,
    Done,
    Event,
    Failure,
    Generate,
    Load,
    LoadOptions,
    Memory,
    Phases,
    Ready,
)


class Conversation:
    """A host whose events are collected in order."""

    def __init__(self) -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        self.host = Host(self.events.put)

    def send(self, command: Command) -> None:
        self.host.handle(command)

    def until(self, *kinds: type) -> list[Any]:
        seen: list[Any] = []
        while not seen or not isinstance(seen[-1], kinds):
            event = self.events.get(timeout=60)
            if not isinstance(event, Memory | Phases):  # come beside an answer
                seen.append(event)
        return seen

    def load(self, directory: Path, **options: Any) -> list[Any]:
        self.send(
            Load(model=str(directory), name="tiny", options=LoadOptions(**options))
        )
        return self.until(Ready, Failure)

    def ask(self, **fields: Any) -> list[Any]:
        if "prompt" not in fields and "messages" not in fields:
            fields["messages"] = ({"role": "user", "content": "hello"},)
        fields = {"id": uuid.uuid4().hex, "max_tokens": 20, **fields}
        self.send(Generate(**fields))
        return self.until(Done, Failure)


def text(events: list[Any], channel: str = "c") -> str:
    cycles = [event for event in events if isinstance(event, Cycle)]
    return "".join(p.text for c in cycles for p in c.pieces if p.channel == channel)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def conversation(model: Path) -> Iterator[Conversation]:
    conversation = Conversation()
    conversation.load(model)
    yield conversation
    conversation.host.close(10)


@pytest.fixture(scope="session")
def roomy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("roomy")
    return tiny.write_model(directory, max_position_embeddings=400_000)


@pytest.fixture
def endless(roomy_model: Path) -> Iterator[Conversation]:
    """A host whose answers do not end by themselves within a test."""
    conversation = Conversation()
    conversation.load(roomy_model)
    yield conversation
    conversation.host.close(10)


@pytest.fixture
def read_text() -> Any:
    return text
