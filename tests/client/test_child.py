# SPDX-License-Identifier: Apache-2.0
"""A real engine process with a tiny model behind the socket."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny

from splashpy.client import child
from splashpy.client.child import LOG_BYTES, ChildClient
from splashpy.errors import EngineDiedError, PermissionDeniedError
from splashpy.protocol import (
    Cancel,
    Cycle,
    Done,
    EngineHello,
    Generate,
    Hello,
    Load,
    Log,
    Ping,
    Pong,
    Ready,
    Sampling,
    Shutdown,
)

pytestmark = pytest.mark.e2e

GOING_ON = Sampling(ignore_eos=True)
ENDLESS = 200_000  # tokens; minutes of work


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has room for answers that do not end by themselves within a test."""
    directory = tmp_path_factory.mktemp("tiny")
    return tiny.write_model(directory, max_position_embeddings=2 * ENDLESS)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy this machine is, an engine has the time to end by itself."""
    monkeypatch.setattr(child, "_GRACE_SECONDS", 60.0)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ChildClient]:
    with ChildClient.spawn(tmp_path / "log" / "engine.log") as client:
        yield client


def until(client: ChildClient, kind: type, seconds: float = 60) -> list[Any]:
    seen: list[Any] = []
    while not seen or not isinstance(seen[-1], kind):
        event = client.receive(seconds)
        assert event is not None, f"no {kind.__name__} within {seconds} s"
        seen.append(event)
    return seen


def wait_until_gone(pid: int, seconds: float = 60) -> bool:
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.usefixtures("patient")
def test_a_child_loads_answers_and_ends(client: ChildClient, model: Path) -> None:
    client.send(Hello())
    assert until(client, EngineHello)[-1].pid == client.process.pid
    client.send(Load(model=str(model)))
    until(client, Ready)
    client.send(Generate(id="a", prompt="hello", max_tokens=10))
    events = until(client, Done)
    assert events[-1].usage.completion == 10
    client.send(Ping(n=3))
    assert until(client, Pong)[-1].n == 3
    client.close()
    assert client.process.returncode == 0
    with pytest.raises(EOFError):
        client.receive(1)


def test_a_child_tells_cycles_together_if_that_is_wished(
    client: ChildClient, model: Path
) -> None:
    client.send(Load(model=str(model)))
    until(client, Ready)
    client.send(
        Generate(
            id="a",
            prompt="hello",
            max_tokens=ENDLESS,
            sampling=GOING_ON,
            gather_ms=600_000,
        )
    )
    first = until(client, Cycle)[-1]
    assert first.i == 0
    # Other events take along what is there; then nothing comes any more.
    told = list(itertools.islice(iter(lambda: client.receive(1.0), None), 500))
    assert len(told) < 500
    client.send(Cancel(id="a"))
    events = told + until(client, Done)
    cycles = [first, *(event for event in events if isinstance(event, Cycle))]
    assert [each.i for each in cycles] == sorted({each.i for each in cycles})
    # Those of a full queue are merged, and no token is lost.
    assert sum(each.committed for each in cycles) == events[-1].usage.completion


def test_a_killed_child_ends_in_one_clear_error_after_the_text_it_sent(
    client: ChildClient, model: Path
) -> None:
    client.send(Load(model=str(model)))
    until(client, Ready)
    client.send(Generate(id="a", prompt="hello", max_tokens=ENDLESS, sampling=GOING_ON))
    until(client, Cycle)
    os.kill(client.process.pid, signal.SIGKILL)
    with pytest.raises(EngineDiedError, match="killed by signal 9"):
        until(client, Done)
    with pytest.raises(EngineDiedError):
        client.receive(1)
    with pytest.raises(EngineDiedError):
        client.send(Ping())


def test_a_crash_shows_what_this_engine_printed_last(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("an engine of last week: Segmentation fault\n")
    # The interpreter reports a module that fails to load at its start.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "for i in range(100): print('line', i, file=sys.stderr, flush=True)\n"
        "os._exit(3)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with (
        ChildClient.spawn(log, environment) as client,
        pytest.raises(EngineDiedError, match="exit status 3") as caught,
    ):
        client.receive(60)
    lines = caught.value.why.splitlines()
    assert lines == [f"line {i}" for i in range(80, 100)]
    assert str(log) in caught.value.fix[-1]


def test_a_crash_that_printed_nothing_blames_no_earlier_engine(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("an engine of last week: Segmentation fault\n")
    with ChildClient.spawn(log) as client:
        os.kill(client.process.pid, signal.SIGKILL)
        with pytest.raises(EngineDiedError, match="killed by signal 9") as caught:
            client.receive(60)
    assert "last week" not in caught.value.why


@pytest.mark.usefixtures("patient")
def test_after_shutdown_the_end_is_told_as_an_end(client: ChildClient) -> None:
    client.send(Shutdown())
    with pytest.raises(EOFError):
        until(client, Done)
    client.close()
    assert client.process.returncode == 0


def test_an_engine_that_no_longer_reads_cannot_hold_the_interface(
    client: ChildClient, model: Path
) -> None:
    client.send(Ping(n=1))
    until(client, Pong)
    os.kill(client.process.pid, signal.SIGSTOP)
    flood = Generate(id="a", prompt="x" * 2_000_000)
    threading.Thread(target=send_quietly, args=(client, flood), daemon=True).start()
    client.close()
    assert client.process.returncode == -signal.SIGKILL


def send_quietly(client: ChildClient, command: Generate) -> None:
    with contextlib.suppress(EngineDiedError):
        client.send(command)


def test_an_unreadable_command_is_logged_and_the_child_lives(
    client: ChildClient,
) -> None:
    client._channel.sendall(b'{"op": "dance"}\nnot json\n')
    logs = [until(client, Log)[-1].text for _ in range(2)]
    assert "dance" in logs[0]
    client.send(Ping(n=1))
    until(client, Pong)


@pytest.mark.usefixtures("patient")
def test_closing_in_the_middle_of_an_answer_does_not_wait_for_its_end(
    client: ChildClient, model: Path
) -> None:
    client.send(Load(model=str(model)))
    until(client, Ready)
    client.send(Generate(id="a", prompt="hello", max_tokens=ENDLESS, sampling=GOING_ON))
    until(client, Cycle)
    client.close()
    assert client.process.returncode == 0


def test_closing_now_kills(client: ChildClient) -> None:
    client.close(now=True)
    assert client.process.returncode == -signal.SIGKILL


def test_a_cancelled_request_is_answered(client: ChildClient, model: Path) -> None:
    client.send(Load(model=str(model)))
    until(client, Ready)
    client.send(Generate(id="a", prompt="hello", max_tokens=ENDLESS, sampling=GOING_ON))
    until(client, Cycle)
    client.send(Cancel(id="a"))
    assert until(client, Done)[-1].reason == "cancelled"


def test_an_engine_does_not_outlive_a_killed_interface(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from splashpy.client.child import ChildClient\n"
        "client = ChildClient.spawn(Path(sys.argv[1]))\n"
        "print(client.process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "engine.log")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert wait_until_gone(pid)


def test_a_log_that_grew_large_is_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_bytes(b"x" * (LOG_BYTES + 1))
    with ChildClient.spawn(log):
        pass
    assert (tmp_path / "engine.1.log").stat().st_size == LOG_BYTES + 1
    assert log.stat().st_size < LOG_BYTES


def test_a_log_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(PermissionDeniedError, match="cannot write") as caught:
        ChildClient.spawn(blocker / "engine.log")
    assert "SPLASHPY_HOME" in caught.value.fix[0]


def test_the_interfaces_side_never_imports_mlx() -> None:
    check = (
        "import sys; import splashpy.client.child\n"
        "assert not {'mlx.core', 'mlx_lm', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
