# SPDX-License-Identifier: Apache-2.0
"""Saved conversations from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commandline import Call

from splashpy.chat.saved import SavedConversation, SavedMessage
from splashpy.chat.store import opened

AT = "2026-03-01T12:00:00.000Z"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPLASHPY_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with opened(tmp_path / "data" / "chats.db", now=lambda: AT) as store:
        for name, text in (("01A", "the quick fox"), ("01B", "\x1b]0;x\x07 wolves")):
            message = SavedMessage(
                id=name + "M", parent=None, role="user", content=text, created_at=AT
            )
            kept = SavedConversation(
                id=name, title=text, created_at=AT, leaf=message.id, model="demo"
            )
            store.write(kept, [message])
    return tmp_path


def test_conversations_are_listed_and_searched(call: Call) -> None:
    everything = call("history")
    assert everything.code == 0
    assert everything.out.splitlines()[0] == "TITLE\tCHANGED\tMESSAGES\tMODEL\tID"
    assert len(everything.out.splitlines()) == 3

    found = call("history", "list", "fox", "--json").json
    assert found["schema"] == "splashpy.history/1"
    assert [row["id"] for row in found["conversations"]] == ["01A"]
    assert "no conversation" in call("history", "list", "zebra").err


def test_one_is_printed_by_the_beginning_of_its_id_or_a_text(call: Call) -> None:
    assert "## You\n\nthe quick fox\n" in call("history", "show", "01a").out
    document = json.loads(call("history", "show", "quick", "--json").out)
    assert document["schema"] == "splashpy.conversation/1"

    missing = call("history", "show", "zebra")
    assert missing.code == 3
    assert "[E-NOT-FOUND]" in missing.err


def test_export_and_import_make_a_copy(call: Call, home: Path) -> None:
    told = call("history", "export", "01A", "--json", "-o", "a.json")
    assert told.json == {"schema": "splashpy.history/1", "written": ["a.json"]}
    copy = call("history", "import", "a.json").out.strip()

    assert copy not in ("01A", "01B")
    assert call("history", "show", copy).out == call("history", "show", "01A").out
    assert call("history", "export", "01A", "-o", "a.json").code == 3
    assert call("history", "export", "--all", "-o", "talks").code == 0
    assert len(list((home / "talks").glob("*.md"))) == 3


def test_deleting_asks_and_then_it_is_gone(call: Call) -> None:
    refused = call("history", "rm", "01A")
    assert refused.code == 2
    assert "--yes" in refused.err

    assert call("history", "rm", "01A", "--yes", "--json").json["deleted"] == ["01A"]
    assert call("history", "show", "01A").code == 3


def test_what_is_meant_by_a_word_has_to_be_clear_to_be_deleted(call: Call) -> None:
    refused = call("history", "rm", "01", "--yes")

    assert refused.code == 2
    assert "01A, 01B" in refused.err
    assert len(call("history", "list", "--json").json["conversations"]) == 2
    assert call("history", "rm", "01a", "01A", "--yes").code == 0
    assert call("history", "rm", "01", "--yes", "--json").json["deleted"] == ["01B"]


def test_an_unknown_action_names_the_nearest(call: Call) -> None:
    result = call("history", "lsit")

    assert result.code == 2
    assert "splashpy history list" in result.err
    assert call("history", "path").out.endswith("chats.db\n")


def test_a_damaged_database_is_moved_aside_not_deleted(call: Call, home: Path) -> None:
    (home / "data" / "chats.db").write_bytes(b"no database at all" * 100)

    assert call("history").code == 0
    assert list((home / "data").glob("chats.db.damaged-*"))
