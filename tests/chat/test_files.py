# SPDX-License-Identifier: Apache-2.0
"""Files sent with a message, long pastes, and what could be meant."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from chat.scripted import NEVER, Chat, MakeChat, Script
from hypothesis import given
from hypothesis import strategies as st
from textual import events

from splashpy.chat import files
from splashpy.chat.keeper import Keeper
from splashpy.chat.widgets.popup import CompletionPopup
from splashpy.client.replay import Timed
from splashpy.errors import InputFileError
from splashpy.protocol import Failure


def test_only_whole_text_files_are_sent(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text")
    (tmp_path / "b.png").write_bytes(b"\x89PNG")
    (tmp_path / "c").write_bytes(b"a\0b")
    (tmp_path / "d").write_bytes(b"a" * (files.LARGEST_FILE + 1))

    assert files.read(tmp_path / "a.md", "a.md").text == "text"
    for name, words in (
        ("b.png", "png file"),
        ("c", "not text"),
        ("d", "1.0 MB"),
        ("e", "cannot be read"),
        ("", "not a file"),
    ):
        with pytest.raises(InputFileError) as caught:
            files.read(tmp_path / name)
        assert words in caught.value.message


@pytest.mark.parametrize("with_git", [True, False])
def test_ignored_and_hidden_files_are_not_offered(
    tmp_path: Path, with_git: bool
) -> None:
    for name in ("a.py", "sub/b.py", ".hidden/c.py", "node_modules/d.js", "e.log"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    if with_git:
        (tmp_path / ".gitignore").write_text("*.log\nnode_modules\n.hidden\n")
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)

    found = set(files.below(tmp_path))

    assert {"a.py", "sub/b.py"} <= found
    assert not found & {".hidden/c.py", "node_modules/d.js"}
    assert ("e.log" in found) is not with_git


def test_the_closest_names_come_first() -> None:
    names = ["src/chat/app.py", "src/apply.txt", "docs/apparatus.md", "README"]

    assert files.matching(names, "app", 2) == ["src/apply.txt", "src/chat/app.py"]
    assert files.matching(names, "SCH", 9) == ["src/chat/app.py"]
    assert files.matching(names, "zzz", 9) == []


@given(st.lists(st.text(max_size=8), max_size=20), st.text(max_size=3))
def test_every_match_contains_the_letters_in_order(names: list[str], word: str) -> None:
    for name in files.matching(names, word, 5):
        letters = iter(name.lower())
        assert all(letter in letters for letter in word.lower())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "notes.md").write_text("# notes [red]\n")
    (tmp_path / "other.txt").write_text("other")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("size", [(100, 30), (40, 12)])
def test_a_file_is_attached_by_its_name_and_sent_before_the_text(
    chat: MakeChat, script: Script, folder: Path, size: tuple[int, int]
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        popup = it.app.screen.query_one(CompletionPopup)
        await it.pilot.press(*"see @nts")
        await it.until(lambda: popup.display)
        await it.pilot.press("tab")
        await it.until(lambda: "notes.md" in it.text_of("AttachedFiles"))
        assert it.prompt.text == "see @notes.md "
        await it.pilot.press("enter")
        await it.until(lambda: "answer" in it.transcript and it.session.idle)
        content = it.session.history()[0]["content"]
        assert content == "notes.md\n```\n# notes [red]\n```\n\nsee @notes.md "
        assert "⎘ notes.md (14 B)" in it.transcript
        assert it.prompt.attachments == []
        await it.send("/edit")
        assert [file.name for file in it.prompt.attachments] == ["notes.md"]

    chat(script.started() + script.answer("answer"), size=size).run(scenario)


def test_attach_and_detach_are_commands(
    chat: MakeChat, script: Script, folder: Path
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        for name in ("notes.md", "other.txt"):
            await it.send(f"/attach {name}")
        await it.send("/detach 1")
        assert [file.name for file in it.prompt.attachments] == ["other.txt"]
        await it.send("/detach")
        assert it.prompt.attachments == []
        await it.send("/attach missing")
        await it.until(lambda: it.app._notifications)
        assert it.prompt.text == "/attach missing"

    chat(script.started()).run(scenario)


def test_a_name_that_was_typed_in_full_is_attached_too(
    chat: MakeChat, script: Script, folder: Path
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        popup = it.app.screen.query_one(CompletionPopup)
        await it.pilot.press(*"@notes.md")
        await it.until(lambda: popup.display)
        await it.pilot.press("enter")
        await it.until(lambda: it.prompt.attachments)
        assert it.session.entries == []

    chat(script.started()).run(scenario)


def test_files_come_back_with_the_message_that_could_not_be_sent(
    chat: MakeChat, script: Script, folder: Path
) -> None:
    failing = [Timed(0.0, Failure(id="a", code="E-X", message="no"))]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("/attach notes.md")
        await it.send("read this")
        await it.until(lambda: it.prompt.text == "read this")
        assert [file.name for file in it.prompt.attachments] == ["notes.md"]
        assert "notes.md" in it.text_of("AttachedFiles")
        await it.pilot.press("enter")
        await it.until(lambda: "answer" in it.transcript and it.session.idle)
        assert "# notes" in it.session.history()[0]["content"]

    recording = script.started() + failing + script.answer("answer", request="b")
    chat(recording).run(scenario)


def test_files_come_back_with_the_message_that_waited(
    chat: MakeChat, script: Script, folder: Path
) -> None:
    endless = [Timed(0.0, script.cycle(0, "half")), Timed(NEVER, script.done())]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("one")
        await it.until(lambda: "half" in it.transcript)
        await it.send("/attach notes.md")
        await it.send("two")
        await it.until(lambda: it.session.queued == "two")
        it.app.screen.writing.take_back_queued()
        assert it.prompt.text == "two"
        assert [file.name for file in it.prompt.attachments] == ["notes.md"]

    chat(script.started() + endless).run(scenario)


def test_files_of_a_draft_are_there_at_the_next_start(
    chat: MakeChat, script: Script, folder: Path
) -> None:
    async def written(it: Chat) -> None:
        await it.ready()
        await it.send("/attach notes.md")
        await it.pilot.press(*"about it")

    async def found(it: Chat) -> None:
        await it.until(lambda: "notes.md" in it.text_of("AttachedFiles"))
        assert it.prompt.text == "about it"

    for scenario in (written, found):
        keeper = Keeper(folder / "chats.db")
        chat(script.started(), keeper=keeper).run(scenario)


def test_commands_are_offered_chosen_and_left(chat: MakeChat, script: Script) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        popup = it.app.screen.query_one(CompletionPopup)
        await it.pilot.press(*"/the")
        await it.until(lambda: popup.display)
        assert "/theme" in str(popup.render())
        await it.pilot.press("enter")
        await it.until(lambda: not popup.display)
        assert it.prompt.text == "/theme "
        await it.pilot.press(*"splash-light", "enter")
        await it.until(lambda: it.app.theme == "splash-light")

        await it.pilot.press(*"/c", "down")
        await it.until(lambda: popup.display)
        await it.pilot.press("escape")
        assert not popup.display
        assert it.prompt.text == "/c"

    chat(script.started()).run(scenario)


async def paste(it: Chat, text: str) -> None:
    it.prompt.post_message(events.Paste(text))
    await it.until(lambda: it.prompt.text)


def test_a_long_paste_is_a_label_and_is_sent_in_full(
    chat: MakeChat, script: Script
) -> None:
    text = "\n".join(f"line {number} [bold]" for number in range(500))

    async def scenario(it: Chat) -> None:
        await it.ready()
        await paste(it, text)
        assert it.prompt.text == "[paste 1 · 500 lines]"
        await it.pilot.press(*" ok", "enter")
        await it.until(lambda: "answer" in it.transcript and it.session.idle)
        assert it.session.history()[0]["content"] == f"{text} ok"
        await it.pilot.press("up")
        assert it.prompt.text == f"{text} ok"

    chat(script.started() + script.answer("answer")).run(scenario)


def test_a_label_is_opened_to_edit_what_it_stands_for(
    chat: MakeChat, script: Script
) -> None:
    text = "\n".join(f"line {number}" for number in range(50))

    async def scenario(it: Chat) -> None:
        await it.ready()
        await paste(it, text)
        await it.pilot.press("left", "enter")
        assert it.prompt.text == text
        assert it.session.entries == []

    chat(script.started()).run(scenario)
