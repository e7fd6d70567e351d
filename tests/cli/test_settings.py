# SPDX-License-Identifier: Apache-2.0
"""config.toml from the command line, and completion scripts."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from commandline import Call
from hypothesis import given
from hypothesis import strategies as st

from splashpy.cli.commands import COMMANDS
from splashpy.cli.config import KEYS
from splashpy.cli.settings import with_value


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPLASHPY_HOME", str(tmp_path))
    monkeypatch.delenv("VISUAL", raising=False)
    return tmp_path


def test_a_value_is_set_shown_and_read(call: Call, home: Path) -> None:
    assert call("config", "get", "chat.theme").code == 1
    assert call("config", "set", "chat.theme", "nord").code == 0
    assert call("config", "set", "chat.mouse", "false").code == 0

    assert call("config", "get", "chat.theme").out == "nord\n"
    assert call("config").out == 'chat.mouse = false\nchat.theme = "nord"\n'
    assert call("config", "show", "--json").json["values"]["chat.mouse"] is False
    path = Path(call("config", "path").out.strip())
    assert path == home / "config" / "config.toml"


def test_values_and_keys_are_checked(call: Call) -> None:
    wrong = call("config", "set", "chat.mouse", "perhaps")
    assert wrong.code == 2
    assert "true or false" in wrong.err

    unknown = call("config", "set", "chat.thme", "x")
    assert unknown.code == 2
    assert "chat.theme" in unknown.err
    assert call("config", "sett").code == 2
    assert call("config", "get").code == 2


def test_a_key_that_knows_only_some_words_refuses_others(call: Call) -> None:
    result = call("config", "set", "chat.enter", "sends")

    assert result.code == 2
    assert "it must be send or newline" in result.err
    assert call("config", "get", "chat.enter").code == 1


def test_a_file_of_another_form_is_left_as_it_is(call: Call, home: Path) -> None:
    path = home / "config" / "config.toml"
    path.parent.mkdir()
    path.write_text('chat.theme = "nord"\n')

    result = call("config", "set", "chat.mouse", "false")

    assert result.code == 2
    assert f"chat.mouse cannot be set in {path}" in result.err
    assert "splashpy config edit" in result.err
    assert path.read_text() == 'chat.theme = "nord"\n'
    assert list(path.parent.iterdir()) == [path]


def test_paths_are_listed(call: Call, home: Path) -> None:
    assert str(home / "data") in call("config", "paths").out
    assert call("config", "paths", "--json").json["paths"]["log"] == str(home / "log")


def test_the_file_is_opened_in_the_editor(
    call: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = home / "editor"
    editor.write_text('#!/bin/sh\necho "[chat]" > "$1"\necho "thme = 1" >> "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("EDITOR", str(editor))

    result = call("config", "edit")

    assert result.code == 0
    assert "unknown key chat.thme" in result.err
    monkeypatch.setenv("EDITOR", "/nonexistent/editor")
    assert call("config", "edit").code == 2


TABLES = """\
# a comment
[chat] # of the chat
  theme = "old" # why
mouse = true

[keys]
theme = "not this one"
"""


def test_everything_else_in_the_file_stays() -> None:
    changed = with_value(TABLES, "chat.theme", value="new")

    assert changed == TABLES.replace('  theme = "old" # why', 'theme = "new"')
    assert tomllib.loads(with_value(TABLES, "defaults.model", value="demo")) == {
        **tomllib.loads(TABLES),
        "defaults": {"model": "demo"},
    }


ALL_KEYS = [f"{table}.{name}" for table, rows in KEYS.items() for name in rows]


@given(st.lists(st.tuples(st.sampled_from(ALL_KEYS), st.text(max_size=8)), max_size=6))
def test_whatever_is_set_is_read_back(changes: list[tuple[str, str]]) -> None:
    text, wanted = "", {}
    for key, value in changes:
        clean = value.encode("utf-8", "ignore").decode().replace("\x7f", "")
        text = with_value(text, key, value=clean)
        wanted[key] = clean

    tables = tomllib.loads(text)
    found = {f"{t}.{n}": v for t, rows in tables.items() for n, v in rows.items()}
    assert found == wanted


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_reads_its_script(call: Call, shell: str) -> None:
    script = call("completion", shell).out

    for name in COMMANDS:
        assert name.split()[0] in script
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=script, text=True, check=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("splashpy", "hi"), "history"),
        (("splashpy", "run", "--tem"), "--temp"),
        (("splashpy", "chat", "--no-sa"), "--no-save"),
    ],
)
def test_bash_completes(call: Call, words: tuple[str, ...], wanted: str) -> None:
    script = call("completion", "bash").out
    line = " ".join(words)
    script += f"\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _splashpy\n"
    script += 'printf "%s\\n" "${COMPREPLY[@]}"\n'

    done = subprocess.run(
        ["bash"], input=script, text=True, capture_output=True, check=True
    )

    assert done.stdout.split() == [wanted]


def test_another_shell_is_refused(call: Call) -> None:
    assert "fish" in call("completion", "fihs").err
    assert call("completion").code == 2
