# SPDX-License-Identifier: Apache-2.0
"""What is on disk after things were said, searched, and broken."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from splashpy.chat.entries import Attachment
from splashpy.chat.saved import SavedConversation, SavedMessage
from splashpy.chat.store import Draft, Store, opened
from splashpy.errors import DatabaseError, NotFoundError

AT = "2026-03-01T12:00:00.000Z"


def now() -> str:
    return AT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "chats.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = Store(path, now=now)
    yield store
    store.close()


def message(name: str, content: str, parent: str | None = None) -> SavedMessage:
    role = "user" if parent is None else "assistant"
    return SavedMessage(
        id=name, parent=parent, role=role, content=content, created_at=AT
    )


def conversation(name: str = "C1", title: str = "title", **fields: object):
    return SavedConversation(id=name, title=title, created_at=AT, **fields)


def test_a_conversation_is_read_back_as_it_was_written(store: Store) -> None:
    file = Attachment("notes.md", "# notes\x1b")
    asked = SavedMessage(
        id="A",
        parent=None,
        role="user",
        content="raw \x1b]0;x\x07 text",
        created_at=AT,
        attachments=(file,),
    )
    answered = SavedMessage(
        id="B",
        parent="A",
        role="assistant",
        content="yes",
        created_at=AT,
        model="demo",
        reasoning="hm",
        done={"ev": "done", "id": "a", "reason": "stop"},
        error={"code": "E-X"},
        trace=b"\x31\x30",
    )
    whole = conversation(
        system="Be brief.",
        parameters={"temperature": 0.5},
        leaf="B",
        model="demo",
        messages=(asked, answered),
    )

    store.write(whole, whole.messages)

    assert store.read("C1") == whole
    assert [m.id for m in store.read("C1").path()] == ["A", "B"]


def test_a_message_grows_and_keeps_its_place(store: Store) -> None:
    store.write(conversation(), [message("A", "one"), message("B", "h", "A")])
    store.write(conversation(leaf="B"), [message("B", "half", "A")])

    assert [m.content for m in store.read("C1").messages] == ["one", "half"]
    assert store.read("C1").leaf == "B"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("quick", ["C1"]),
        ("QUICK", ["C1"]),
        ("世界", ["C2"]),
        ("界", ["C2"]),
        ('say "hi"', ["C2"]),
        ("100%", []),
        ("Title Two", ["C2"]),
        ("nothing like it", []),
        ("", ["C2", "C1"]),
    ],
)
def test_search_finds_words_of_any_length(
    store: Store, query: str, found: list[str]
) -> None:
    store.write(conversation(), [message("A", "the quick brown fox, 1000")])
    store.write(
        conversation("C2", "title two"), [message("B", '你好世界, say "hi" now')]
    )

    assert [summary.id for summary in store.summaries(query)] == found


def test_search_follows_a_text_that_changes(store: Store) -> None:
    store.write(conversation(), [message("A", "before")])
    store.write(conversation(), [message("A", "afterwards")])

    assert store.summaries("before") == []
    assert [summary.messages for summary in store.summaries("after")] == [1]


def test_pinned_conversations_come_first_and_titles_can_be_changed(
    store: Store,
) -> None:
    for name in ("C1", "C2"):
        store.write(conversation(name), [message(f"M{name}", "text")])
    store.pin("C1", pinned=True)
    store.rename("C1", "better")
    store.write(conversation("C1"), [])

    first = store.summaries()[0]
    assert (first.id, first.title, first.pinned) == ("C1", "better", True)


def test_a_deleted_conversation_leaves_nothing_behind(store: Store, path: Path) -> None:
    store.write(conversation(), [message("A", "secret words")])
    store.write_draft("C1", Draft("unsent", files=(Attachment("a", "secret"),)))
    store.delete("C1")

    assert store.summaries("secret") == []
    assert store.draft("C1") == Draft()
    store.write_draft("C1", Draft("later"))
    assert store.draft("C1") == Draft("later")
    with pytest.raises(NotFoundError):
        store.read("C1")


def test_an_id_its_beginning_or_a_text_names_a_conversation(store: Store) -> None:
    store.write(conversation("01JAAA"), [message("A", "about foxes")])

    assert store.find("01JAAA") == store.find("01ja") == store.find("foxes")
    with pytest.raises(NotFoundError, match="wolves"):
        store.find("wolves")


def test_files_of_a_draft_are_replaced_with_it(store: Store) -> None:
    first, second = Attachment("a.md", "one"), Attachment("b.md", "two")
    for draft in (
        Draft("text", files=(first, second)),
        Draft("more text", "waits", (first, second)),
        Draft(files=(second,)),
        Draft("text"),
        Draft(),
    ):
        store.write_draft("C1", draft)
        assert store.draft("C1") == draft


def test_a_file_of_an_earlier_version_gets_what_is_new(path: Path) -> None:
    with opened(path, now=now) as store:
        store.write(conversation(), [message("A", "words")])
        store.write_draft("C1", Draft("text"))
    with sqlite3.connect(path) as earlier:
        earlier.execute("DROP TABLE draft_files")
        earlier.execute("PRAGMA user_version = 1")
    earlier.close()

    with opened(path, now=now) as store:
        assert store.draft("C1") == Draft("text")
        assert store.read("C1").messages[0].content == "words"
        draft = Draft("text", files=(Attachment("a.md", "one"),))
        store.write_draft("C1", draft)
        assert store.draft("C1") == draft


def test_two_programs_add_to_one_conversation_and_neither_loses_a_word(
    store: Store, path: Path
) -> None:
    store.write(conversation(leaf="A"), [message("A", "one")])
    with opened(path, now=now) as other:
        other.write(conversation(leaf="B"), [message("B", "theirs", "A")])
        store.write(conversation(leaf="C"), [message("C", "ours", "A")])

        contents = [m.content for m in other.read("C1").messages]
    assert contents == ["one", "theirs", "ours"]


def test_an_answer_whose_program_was_killed_is_partial(
    store: Store, path: Path
) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from splashpy.chat.store import Store\n"
        "from splashpy.chat.saved import SavedConversation as C, SavedMessage as M\n"
        f"s = Store(Path(sys.argv[1]), now=lambda: {AT!r})\n"
        f"m = M(id='A', parent=None, role='assistant', content='ha',"
        f" created_at={AT!r}, state='streaming')\n"
        f"s.write(C(id='C1', title='', created_at={AT!r}), [m])\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    ours = SavedMessage(
        id="B",
        parent=None,
        role="assistant",
        content="",
        created_at=AT,
        state="streaming",
    )
    store.write(conversation(), [ours])

    assert store.recover() == 1
    states = {m.id: m.state for m in store.read("C1").messages}
    assert states == {"A": "partial", "B": "streaming"}


def test_the_latest_prompts_are_kept_once_each(store: Store) -> None:
    for text in ("one", "two", "one"):
        store.write_prompt(text)

    assert store.prompts() == ["two", "one"]


def test_only_the_owner_can_read_it(store: Store, path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", ["head", "middle"])
def test_a_damaged_file_is_moved_aside_and_a_new_one_started(
    path: Path, damage: str
) -> None:
    with opened(path, now=now) as store:
        for number in range(40):
            store.write(conversation(), [message(f"M{number}", "text " * 500)])
    data = bytearray(path.read_bytes())
    start, end = (0, 100) if damage == "head" else (4096, len(data) // 2)
    data[start:end] = os.urandom(end - start)
    path.write_bytes(data)

    store = Store(path, now=now)
    store.check()

    assert store.moved_to is not None
    assert store.moved_to.read_bytes() == data
    assert store.summaries() == []
    store.close()


def test_a_file_that_cannot_be_read_now_is_not_taken_for_damaged(path: Path) -> None:
    store = Store(path, now=now)
    store.close()

    with pytest.raises(DatabaseError):
        store.check()

    assert store.moved_to is None
    assert path.exists()


def test_a_file_of_a_newer_splashpy_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()

    with pytest.raises(DatabaseError) as caught:
        Store(path, now=now)

    assert "99" in caught.value.why
    assert path.exists()


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(DatabaseError, match="cannot be used"):
        Store(tmp_path / "file" / "chats.db", now=now)
