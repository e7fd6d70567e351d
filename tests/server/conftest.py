# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_engine import PLAIN_TEMPLATE, Script, ScriptedEngine, write_speaker
from server_kit import Mortal, Running, until
from tokenizers import Tokenizer

from splashpy.host import host as host_module
from splashpy.protocol import Load
from splashpy.server import restarts
from splashpy.server.settings import ServerSettings

Serve = Callable[..., Running]


@pytest.fixture(scope="session")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_speaker(tmp_path_factory.mktemp("speaker"))


@pytest.fixture(scope="session")
def plain_speaker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("plain")
    return write_speaker(directory, PLAIN_TEMPLATE)


@pytest.fixture(scope="session")
def one_script() -> Script:
    return Script()


@pytest.fixture
def script(one_script: Script) -> Script:
    one_script.begin()
    return one_script


@pytest.fixture(scope="session")
def start(one_script: Script) -> Serve:
    """Starts a server whose engine follows the script; the caller ends it."""

    def begin(model: Path, **fields: object) -> Running:
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        engine = functools.partial(ScriptedEngine, one_script, tokenizer)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(host_module, "Engine", engine)
            settings = ServerSettings(**{"model": "maker/tiny", **fields})
            server = Running(settings, load=Load(model=str(model), name="tiny"))
            server.__enter__()
            until(lambda: server.engine_started)
        return server

    return begin


@pytest.fixture
def serve(speaker: Path, script: Script, start: Serve) -> Iterator[Serve]:
    """Starts servers for one test."""
    running: list[Running] = []

    def begin(
        model: Path = speaker, *, ready: bool = True, **fields: object
    ) -> Running:
        running.append(start(model, **fields))
        return running[-1].wait_ready() if ready else running[-1]

    yield begin
    for server in running:
        server.__exit__()
        assert server.faults == []


@pytest.fixture
def mortal(
    speaker: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[Running, list[Mortal]]]]:
    """Starts servers for one test; also gives their engines, which can be killed."""
    monkeypatch.setattr(restarts, "FIRST_WAIT", 0.01)
    tokenizer = Tokenizer.from_file(str(speaker / "tokenizer.json"))
    engine = functools.partial(ScriptedEngine, script, tokenizer)
    monkeypatch.setattr(host_module, "Engine", engine)
    running: list[Running] = []

    def begin(model: Path = speaker, **fields: Any) -> tuple[Running, list[Mortal]]:
        lives: list[Mortal] = []

        def connect() -> Mortal:
            lives.append(Mortal())
            return lives[-1]

        settings = ServerSettings(model="tiny", **fields)
        load = Load(model=str(model), name="tiny")
        running.append(Running(settings, connect, load).__enter__())
        return running[-1].wait_ready(), lives

    yield begin
    for server in running:
        server.__exit__()
        assert server.faults == []


@pytest.fixture(scope="session")
def one_server(speaker: Path, start: Serve) -> Iterator[Running]:
    server = start(speaker).wait_ready()
    yield server
    server.__exit__()


@pytest.fixture
def server(one_server: Running, script: Script) -> Iterator[Running]:
    """The server all tests share that want no settings of their own."""
    yield one_server
    until(lambda: one_server.endpoint.active == 0)
    one_server.post("/tokenize", {"content": ""})  # what came before is with the engine
    until(lambda: not script.unanswered)  # or it would go on in the next test
    assert one_server.faults == []


@pytest.fixture(scope="session")
def polyglot(speaker: Path, start: Serve) -> Iterator[Running]:
    """A server that speaks every dialect; a test asks for its script, too."""
    server = start(speaker, ollama=True, lmstudio=True).wait_ready()
    yield server
    server.__exit__()
    assert server.faults == []
