# SPDX-License-Identifier: Apache-2.0
"""Copying reaches the person's clipboard by the first way that works."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat.scripted import Chat, MakeChat, Script

from splashpy.chat.clipboard import (
    MOST_TERMINAL_BYTES,
    copy_with_program,
    programs,
    write_file,
)


def names(*, display: bool, tmux: bool) -> list[str]:
    return [name for name, *_ in programs(display=display, tmux=tmux)]


def test_desktop_programs_come_first_and_only_where_there_is_a_desktop() -> None:
    assert names(display=True, tmux=True)[0] == "pbcopy"
    assert names(display=True, tmux=True)[-1] == "tmux"
    assert names(display=False, tmux=True) == ["tmux"]
    assert names(display=False, tmux=False) == []


def test_a_program_gets_the_text_and_one_that_fails_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, line in (("broken", "exit 1"), ("good", f"cat >{tmp_path}/copied")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert copy_with_program("a \ud800", [["missing"], ["broken"], ["good"]]) == "good"
    assert (tmp_path / "copied").read_text() == "a ?"
    assert copy_with_program("a", [["broken"]]) is None


def test_a_file_that_was_saved_is_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = write_file("text")
    assert path.read_text() == "text"
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_too_long_for_a_terminal_is_saved_and_said(
    chat: MakeChat, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    text = "x" * (MOST_TERMINAL_BYTES + 1)

    async def scenario(it: Chat) -> None:
        await it.ready()
        it.app.copy_to_clipboard(text)
        await it.until(lambda: it.app._notifications)
        assert str(tmp_path) in next(iter(it.app._notifications)).message
        (saved,) = tmp_path.glob("splashpy-*.md")
        assert saved.read_text() == text

    chat(script.started()).run(scenario)
