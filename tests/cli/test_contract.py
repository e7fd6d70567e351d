# SPDX-License-Identifier: Apache-2.0
"""What every command keeps to, one row of a table for each way of calling one."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
import tiny
from commandline import Call
from huggingface_hub import constants

from splashpy.cli import commands, program
from splashpy.cli.catalogue import CATALOGUE, EXIT_CODES
from splashpy.cli.page import PageCommand

NO_MODEL = "no-such-model"
CALLS: tuple[tuple[str, ...], ...] = (
    ("run", NO_MODEL, "hi"),
    ("pull", NO_MODEL),
    ("list", "--all"),
    ("show", NO_MODEL),
    ("rm", NO_MODEL),
    ("pack", NO_MODEL, "-o", "out"),
    ("unpack", NO_MODEL, "-o", "out"),
    ("cache", "ls"),
    ("cache", "show", "3f9a"),
    ("cache", "why"),
    ("cache", "warm", "no-such-file", NO_MODEL),
    ("cache", "clear"),
    ("cache", "verify"),
    ("serve", NO_MODEL, "--port", "0"),
    ("ps",),
    ("stop",),
    ("launch", "codex"),
    ("integrations",),
    ("verify", NO_MODEL),
    ("bench", NO_MODEL),
    ("train", NO_MODEL, "-o", "out"),
    ("train", "data", NO_MODEL, "-o", "out"),
    ("doctor",),
    ("history",),
    ("history", "path"),
    ("history", "export", "--all", "-o", "talks"),
    ("history", "rm", "3f9a"),
    ("config",),
    ("config", "get", "chat.theme"),
    ("config", "set", "chat.theme", "nord"),
    ("config", "path"),
    ("config", "paths"),
    ("help", "E-FIT"),
)
"""Every command, where nothing is installed and nothing may be fetched."""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands are called."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def name_of(words: Sequence[str]) -> str:
    both = " ".join(words[:2])
    return both if both in commands.COMMANDS else words[0]


def test_the_table_has_every_command_that_knows_json() -> None:
    known = {name for name in commands.listed() if "json" in _options(name)}

    assert {name_of(words) for words in CALLS} == known
    assert set(commands.listed()) - known == {"chat", "completion"}


def _options(name: str) -> tuple[str, ...]:
    command = program.load(name)
    assert isinstance(command, PageCommand)
    return command.options


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_with_json_stdout_is_one_document(call: Call, words: tuple[str, ...]) -> None:
    result = call(*words, "--json")
    document = result.json

    name = name_of(words).replace(" ", "-")
    if "error" in document and document["schema"] == "splashpy.error/1":
        assert result.code == CATALOGUE[document["error"]["code"]].exit_code
    else:
        assert document["schema"] == f"splashpy.{name}/1"
        assert result.code in (0, 1)
    assert next(iter(document)) == "schema"
    assert result.out.endswith("}\n")
    assert "error:" not in result.err


HOMES: dict[str, tuple[str, ...]] = {
    "a file": (),
    "full of files": ("data", "cache", "config", "state", "log"),
}


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_a_home_that_cannot_be_used_is_no_bug(
    call: Call,
    words: tuple[str, ...],
    home: str,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = directory / "home"
    if HOMES[home]:
        place.mkdir()
        for name in HOMES[home]:
            (place / name).touch()
    else:
        place.touch()
    monkeypatch.setenv("SPLASHPY_HOME", str(place))
    result = call(*words)

    assert "E-INTERNAL" not in result.err
    assert "Traceback" not in result.err
    assert result.code in EXIT_CODES


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_a_narrow_terminal_without_colours_gets_no_escape(
    call: Call, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("NO_COLOR", "1")
    result = call(*words)

    assert "\x1b" not in result.out + result.err
    assert "E-INTERNAL" not in result.err


FILES = (
    ("run", "demo", "-f", "FILE", "hi"),
    ("run", "demo", "-s", "@FILE", "hi"),
    ("run", "demo", "--messages", "FILE"),
    ("cache", "warm", "FILE", "demo"),
    ("verify", "demo", "--prompts", "FILE"),
    ("bench", "demo", "--compare", "FILE"),
    ("train", "demo", "-o", "out", "--config", "FILE"),
    ("train", "data", "demo", "FILE", "-o", "out"),
    ("history", "import", "FILE"),
)


@pytest.mark.parametrize("words", FILES, ids=" ".join)
@pytest.mark.parametrize("kind", ["missing", "directory", "bytes"])
def test_a_file_that_cannot_be_used_is_named_with_its_code(
    call: Call, words: tuple[str, ...], kind: str, directory: Path
) -> None:
    path = directory / "given"
    if kind == "directory":
        path.mkdir()
    elif kind == "bytes":
        path.write_bytes(b"\xff\xfe\x00")
    result = call(*(word.replace("FILE", str(path)) for word in words))

    assert result.code == 3
    assert "[E-FILE]" in result.err
    assert str(path) in result.err


BROKEN = ("[defaults\n", "[chat]\nmouse = 1\n")


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_configuration_does_not_stop_what_helps_against_it(
    call: Call,
    content: str,
    clean_environment: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = clean_environment / "config" / "config.toml"
    file.parent.mkdir()
    file.write_text(content)
    monkeypatch.setenv("EDITOR", "cp /dev/null")
    broken = call("list")

    assert broken.code == call("config").code == 2
    assert "fix:   splashpy config edit" in broken.err
    assert "E-USAGE (exit code 2)" in call("help", "E-USAGE").out
    assert call("config", "path").out == f"{file}\n"
    assert call("config", "edit").code == 0
    assert call("list").code == 0


def test_an_installed_model_is_used_offline_without_a_socket(
    call: Call, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    hub = clean_environment / "hf" / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub))
    repository = hub / "models--tiny--llama"
    tiny.write_model(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)

    def refuse(*_: Any) -> NoReturn:
        raise AssertionError("a socket")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    short = ("--max-tokens", "2", "--json")

    assert call("show", "tiny/llama", "--json").code == 0
    assert call("verify", "tiny/llama", "--files").code == 0
    told = call("run", "tiny/llama", "hi", *short)
    assert json.loads(told.out)["usage"]["completion"] == 2
