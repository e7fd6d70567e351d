# SPDX-License-Identifier: Apache-2.0
"""``splashpy serve``, ``ps`` and ``stop`` as processes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import tiny
from commandline import (
    LIMIT,
    Call,
    Record,
    Start,
    beginning,
    finish,
    on_terminal,
    read_until,
)

from splashpy.cli import servers
from splashpy.client.replay import Timed, recorded_line

pytestmark = pytest.mark.e2e


def serve(start: Start, record: Record, *flags: str) -> Any:
    """A server of a recording, at a free port."""
    recording = str(record("Red", ", blue."))
    return start("serve", "--port", "0", "--replay", recording, *flags)


def ready(process: subprocess.Popen[bytes]) -> str:
    """Wait until it answers; returns its address."""
    told = read_until(process, b"stop with Ctrl-C\n", of="stderr")
    text = told.decode() if isinstance(told, bytes) else told
    return text.split("Ready ")[1].split()[0]


def fetch(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers)
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        return json.load(answer)


def test_a_server_answers_until_ctrl_c(start: Start, record: Record) -> None:
    process = serve(start, record)
    url = ready(process)
    body = {"messages": [{"role": "user", "content": "hi"}]}

    answer = fetch(f"{url}/chat/completions", body)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)

    assert answer["choices"][0]["message"]["content"] == "Red, blue."
    assert (code, out) == (130, "")
    assert "stopping… press Ctrl-C again to stop now" in err


def test_a_second_ctrl_c_does_not_wait_for_what_runs(
    start: Start, record: Record
) -> None:
    recording = str(record("Red", " never", waits=(0, 0, 1e6)))
    process = start("serve", "--port", "0", "--replay", recording)
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    request = urllib.request.Request(
        f"{ready(process)}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        while b"Red" not in answer.readline():
            pass
        process.send_signal(signal.SIGINT)
        read_until(process, b"to stop now", of="stderr")
        process.send_signal(signal.SIGINT)

        assert finish(process)[0] == 130


def test_other_dialects_are_there_when_asked_for(start: Start, record: Record) -> None:
    process = serve(start, record, "--ollama", "--lmstudio")
    root = ready(process).removesuffix("/v1")

    tags = fetch(f"{root}/api/tags")
    studio = fetch(f"{root}/api/v0/models")
    process.send_signal(signal.SIGINT)
    finish(process)

    assert tags["models"][0]["name"] == studio["data"][0]["id"]


def test_a_script_is_told_the_address_on_one_line(start: Start, record: Record) -> None:
    process = serve(start, record, "--json")
    line = read_until(process, b"}\n", of="stdout")
    told = json.loads(line)

    process.send_signal(signal.SIGTERM)
    code, _, _ = finish(process)

    assert told["schema"] == "splashpy.serve/1"
    assert told["pid"] == process.pid
    assert told["url"].endswith("/v1")
    assert code == 143


def test_a_running_server_is_listed_and_stopped(
    start: Start, record: Record, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_ASK_SECONDS", "_STOP_SECONDS"):  # this machine may be busy
        monkeypatch.setattr(servers, name, LIMIT)
    process = serve(start, record)
    port = int(ready(process).rsplit(":", 1)[1].split("/")[0])

    listed = call("ps", "--json").json["servers"]
    stopped = call("stop", str(port), "--json")
    code, _, _ = finish(process)

    assert [(item["port"], item["pid"]) for item in listed] == [(port, process.pid)]
    assert listed[0]["status"]["state"] == "ready"
    assert (stopped.code, code) == (0, 143)
    assert [item["port"] for item in stopped.json["stopped"]] == [port]
    assert call("ps", "--json").json["servers"] == []


def test_a_server_that_still_loads_is_listed_and_a_chat_waits_for_it(
    start: Start, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "_ASK_SECONDS", LIMIT)
    hello, loading, ready = beginning()
    moments = (Timed(0, hello), Timed(0, loading), Timed(1e6, ready))
    recording = tmp_path / "loading.ndjson"
    recording.write_text("".join(map(recorded_line, moments)), encoding="utf-8")
    process = start("serve", "--port", "0", "--replay", str(recording))
    while not (listed := call("ps", "--json").json["servers"]):
        assert process.poll() is None

    code, shown = on_terminal(
        start, "chat", typed=(("talking with the server at", b"\x11"),)
    )
    process.send_signal(signal.SIGTERM)
    finish(process)

    assert listed[0]["status"]["state"] == "loading"
    assert code == 0
    assert f"127.0.0.1:{listed[0]['port']}" in shown
    assert call("ps", "--json").json["servers"] == []


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_a_killed_server_leaves_no_engine_behind(start: Start, tmp_path: Path) -> None:
    model = tiny.write_model(tmp_path / "model")
    process = start("serve", str(model), "--port", "0", "--unload-after", "60")
    url = ready(process)
    status = fetch(f"{url}/status")
    engine = status["engine"]["pid"]
    assert runs(engine)

    process.kill()

    process.wait()
    until = time.monotonic() + LIMIT
    while runs(engine):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert status["engine"]["unload_after_s"] == 3600


def runs(pid: int) -> bool:
    """Whether a process is there and not just its exit code, which nobody reads."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except OSError:
        return False


def test_an_agent_is_started_with_the_server_it_shall_use(
    start: Start,
    record: Record,
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = serve(start, record)
    url = ready(process).removesuffix("/v1")
    agent = tmp_path / "claude"
    agent.write_text(
        '#!/bin/sh\necho "$ANTHROPIC_BASE_URL $ANTHROPIC_AUTH_TOKEN '
        '${ANTHROPIC_API_KEY-none} $*"\n'
    )
    agent.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "paid")

    code, out, _ = finish(start("launch", "claude", "--", "-p", "hi"))
    printed = call("launch", "claude", "--print-env").out
    fields = call("launch", "claude", "--print-env", "--json").json
    told = call("integrations").out
    missing = call("launch", "opencode")
    process.send_signal(signal.SIGINT)
    finish(process)

    assert code == 0
    assert out.startswith(f"{url} local none --model ")
    assert out.endswith("-p hi\n")
    assert f"export ANTHROPIC_BASE_URL={url}" in printed
    assert "unset ANTHROPIC_API_KEY" in printed
    assert fields["environment"]["ANTHROPIC_BASE_URL"] == url
    assert f"export OPENAI_BASE_URL={url}/v1" in told
    assert missing.code == 3
    assert "[E-PROGRAM]" in missing.err
    assert "https://opencode.ai" in missing.err


def test_without_a_server_no_agent_is_started(call: Call) -> None:
    result = call("launch", "codex")

    assert result.code == 7
    assert "splashpy serve" in result.err
    assert call("launch", "nobody").code == 2
    assert call("integrations").code == 7


def test_a_taken_port_is_told_at_once(start: Start, record: Record, call: Call) -> None:
    process = serve(start, record)
    port = ready(process).rsplit(":", 1)[1].split("/")[0]

    second = call("serve", "nowhere-at-all", "--port", port)
    process.send_signal(signal.SIGINT)
    finish(process)

    assert second.code == 7
    assert "E-PORT" in second.err


def test_stopping_what_does_not_run_is_an_error(call: Call) -> None:
    assert call("stop").code == 7
    assert "E-NO-SERVER" in call("stop", "8000").err


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--host", "0.0.0.0"), "lets other machines in"),
        (("--api-key", "kéy"), "visible ASCII"),
        (("--effort-map", "high"), "ASKED=MEANT"),
    ],
)
def test_what_would_be_unsafe_or_unclear_is_refused(
    call: Call, flags: tuple[str, ...], told: str
) -> None:
    result = call("serve", *flags)

    assert result.code == 2
    assert told in result.err
