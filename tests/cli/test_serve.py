# SPDX-License-Identifier: Apache-2.0
"""``splashpy serve``, ``ps`` and ``stop`` as processes."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from commandline import Call, Record, Start, finish, read_until

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
    with urllib.request.urlopen(request, timeout=10) as answer:
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
    start: Start, record: Record, call: Call
) -> None:
    process = serve(start, record)
    port = int(ready(process).rsplit(":", 1)[1].split("/")[0])

    listed = call("ps", "--json").json["servers"]
    stopped = call("stop", str(port))
    code, _, _ = finish(process)

    assert [(item["port"], item["pid"]) for item in listed] == [(port, process.pid)]
    assert listed[0]["status"]["state"] == "ready"
    assert (stopped.code, code) == (0, 143)
    assert call("ps", "--json").json["servers"] == []


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
    told = call("integrations").out
    missing = call("launch", "opencode")
    process.send_signal(signal.SIGINT)
    finish(process)

    assert code == 0
    assert out.startswith(f"{url} local none --model ")
    assert out.endswith("-p hi\n")
    assert f"export ANTHROPIC_BASE_URL={url}" in printed
    assert "unset ANTHROPIC_API_KEY" in printed
    assert f"export OPENAI_BASE_URL={url}/v1" in told
    assert missing.code == 3
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
