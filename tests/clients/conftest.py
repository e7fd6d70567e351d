# SPDX-License-Identifier: Apache-2.0
"""Real clients against a real server whose engine says what a test tells it.

``scripts/test_clients`` installs the clients and names their directory in
``SPLASHPY_CLIENTS``; without it, and where one is not installed, its tests are skipped.
Every ``test_NAME.py`` belongs to the client of that name.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from clients.catalogue import CLIENTS, Client
from clients.person import Person
from clients.wire import Wire
from scripted_engine import Said, Script, ScriptedEngine, write_speaker
from server_kit import Running, until
from tokenizers import Tokenizer

from splashpy.cli.agents import Service
from splashpy.errors import ContextLengthError, ShortageError, SplashError
from splashpy.host import host as host_module
from splashpy.protocol import Load
from splashpy.server import serving
from splashpy.server.settings import ServerSettings

# Read before the environment of tests is cleaned.
INSTALLED = os.environ.get("SPLASHPY_CLIENTS")
HERE = Path(__file__).parent
CONTEXT = 400_000  # a token is a byte here, and agents begin with 100 KB
MODEL = "maker/tiny"


def client_of(path: Path) -> Client:
    """The client a file of tests is about."""
    name = path.stem.removeprefix("test_")
    return next(client for client in CLIENTS if client.name == name)


def why_not(path: Path) -> str:
    """Why the client of a file cannot be tried; empty where it can."""
    if INSTALLED is None:
        return "real clients are tried by scripts/test_clients"
    client = client_of(path)
    if client.version(Path(INSTALLED)):
        return ""
    fix = f"scripts/test_clients --install --only {client.name}"
    return f"{client.title} is not installed: {fix}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and (reason := why_not(item.path)):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("speaker")
    return write_speaker(directory, context=CONTEXT)


@contextmanager
def running(
    model: Path, script: Script, wire: Wire, **settings: Any
) -> Iterator[Running]:
    """A server that follows a script, with its wire tapped."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    build_app = serving.build_app

    def tapped(*arguments: Any) -> Any:
        return wire.around(build_app(*arguments))

    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            engine = functools.partial(ScriptedEngine, script, tokenizer)
            patch.setattr(host_module, "Engine", engine)
            patch.setattr(serving, "build_app", tapped)
            # Shorter silences than any client's patience.
            asked = ServerSettings(model=MODEL, keepalive_seconds=1.0, **settings)
            load = Load(model=str(model), name="tiny")
            server = stack.enter_context(Running(asked, load=load))
            until(lambda: server.engine_started)
        yield server.wait_ready()


@pytest.fixture(scope="session")
def lasting() -> tuple[Script, Wire]:
    """Script and wire of the server all tests share."""
    return Script(context=CONTEXT), Wire()


@pytest.fixture(scope="session")
def one_server(speaker: Path, lasting: tuple[Script, Wire]) -> Iterator[Running]:
    with running(speaker, *lasting) as server:
        yield server


@pytest.fixture
def server(one_server: Running, lasting: tuple[Script, Wire]) -> Iterator[Running]:
    """The server; it has forgotten what was before."""
    script, wire = lasting
    script.begin()
    wire.calls.clear()
    yield one_server
    until(lambda: one_server.endpoint.active == 0)
    assert one_server.faults == []


@pytest.fixture
def script(server: Running, lasting: tuple[Script, Wire]) -> Script:
    return lasting[0]


@pytest.fixture
def wire(server: Running, lasting: tuple[Script, Wire]) -> Wire:
    return lasting[1]


@pytest.fixture
def service(server: Running) -> Service:
    """What ``splashpy launch`` knows of the server."""
    return Service(url=server.url, model="tiny", context=CONTEXT)


@pytest.fixture
def prompts(speaker: Path, script: Script) -> Callable[[], list[str]]:
    """What the engine was given to read so far."""
    tokenizer = Tokenizer.from_file(str(speaker / "tokenizer.json"))

    def read() -> list[str]:
        return [
            tokenizer.decode(list(request.token_ids), skip_special_tokens=False)
            for request in script.requests
        ]

    return read


@pytest.fixture
def person(request: pytest.FixtureRequest, tmp_path: Path) -> Person:
    assert INSTALLED is not None
    client = client_of(request.path)
    return Person.moves_in(client.programs(Path(INSTALLED)), tmp_path)


@pytest.fixture
def ask(request: pytest.FixtureRequest, person: Person) -> Callable[..., Any]:
    """What a flow of a library found out, run by the library's own interpreter."""
    name = client_of(request.path).name

    def run(flow: str, url: str) -> Any:
        program = HERE / "programs" / f"{name}_flows.py"
        return json.loads(person.run("python", program, flow, url).stdout)

    return run


def refusal(error: SplashError) -> Said:
    """The engine refuses a request before it begins."""

    def refuse() -> None:
        raise error

    return Said(prefill=refuse)


@pytest.fixture
def too_long() -> Said:
    """The engine finds that a prompt does not fit."""
    error = ContextLengthError("the prompt is too long")
    error.prompt_tokens = CONTEXT + 17
    return refusal(error)


@pytest.fixture
def no_memory() -> Said:
    """The engine cannot take a request now."""
    return refusal(ShortageError("no memory for this request now"))


@pytest.fixture
def locked(speaker: Path) -> Iterator[Running]:
    """A server that wants a key."""
    with running(speaker, Script(context=CONTEXT), Wire(), key="s3cret") as server:
        yield server
