# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import server_kit
from server_kit import Running, Script, ScriptedEngine
from tokenizers import Tokenizer

from splashpy.host import host as host_module
from splashpy.protocol import Load
from splashpy.server.settings import ServerSettings

Serve = Callable[..., Running]


@pytest.fixture(scope="session")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return server_kit.write_speaker(tmp_path_factory.mktemp("speaker"))


@pytest.fixture(scope="session")
def plain_speaker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("plain")
    return server_kit.write_speaker(directory, server_kit.PLAIN_TEMPLATE)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def serve(
    speaker: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Serve]:
    running: list[Running] = []

    def start(
        model: Path = speaker, *, ready: bool = True, **fields: object
    ) -> Running:
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        engine = functools.partial(ScriptedEngine, script, tokenizer)
        monkeypatch.setattr(host_module, "Engine", engine)
        settings = ServerSettings(**{"model": "maker/tiny", **fields})
        server = Running(settings, load=Load(model=str(model), name="tiny"))
        running.append(server.__enter__())
        return server.wait_ready() if ready else server

    yield start
    for server in running:
        server.__exit__()
        assert server.faults == []


@pytest.fixture
def server(serve: Serve) -> Running:
    return serve()
