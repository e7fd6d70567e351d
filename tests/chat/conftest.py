# SPDX-License-Identifier: Apache-2.0
"""Scripted engines and recordings for the tests of the chat."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat.scripted import Chat, MakeChat, Script
from chat.spoken import READY, new_session

from splashpy.chat.session import Session
from splashpy.client.client import EngineClient
from splashpy.client.replay import Timed


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def chat() -> MakeChat:
    def make(
        *engines: list[Timed] | Callable[[], EngineClient], **options: Any
    ) -> Chat:
        return Chat(list(engines), **options)

    return make


@pytest.fixture
def replays() -> Path:
    return Path(__file__).parent.parent / "replays"


@pytest.fixture
def session() -> Session:
    """A session whose engine is ready."""
    session = new_session()
    session.apply(READY, 0.0)
    return session
