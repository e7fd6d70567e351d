# SPDX-License-Identifier: Apache-2.0
"""Saved messages as rows of the database, and the condition of a search."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from typing import Any

from splashpy.chat.entries import Attachment
from splashpy.chat.saved import SavedMessage

_SHORTEST_TRIGRAM = 3  # characters; shorter words are not in the search index
_COLUMNS = (
    "id, parent, role, content, created_at, model, reasoning, tool_text, state, done,"
    " error, trace, left_out"
)


def read_messages(
    connection: sqlite3.Connection, conversation: str
) -> Iterator[SavedMessage]:
    """The messages of a conversation, in the order in which they were said."""
    attached = _attachments(connection, conversation)
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM messages WHERE conversation = ? ORDER BY rowid",
        (conversation,),
    )
    names = [column.strip() for column in _COLUMNS.split(",")]
    for row in rows.fetchall():
        fields: dict[str, Any] = dict(zip(names, row, strict=True))
        for key in ("done", "error"):
            fields[key] = json.loads(fields[key]) if fields[key] else None
        fields["trace"] = fields["trace"] or b""
        fields["left_out"] = bool(fields["left_out"])
        yield SavedMessage(**fields, attachments=tuple(attached.get(fields["id"], ())))


def _attachments(
    connection: sqlite3.Connection, conversation: str
) -> dict[str, list[Attachment]]:
    rows = connection.execute(
        "SELECT a.message, a.name, a.text FROM attachments a JOIN messages m"
        " ON m.id = a.message WHERE m.conversation = ? ORDER BY a.position",
        (conversation,),
    )
    found: dict[str, list[Attachment]] = {}
    for message, name, text in rows:
        found.setdefault(message, []).append(Attachment(name, text))
    return found


def write_message(
    connection: sqlite3.Connection, conversation: str, message: SavedMessage
) -> None:
    """Add a message, or complete one that is there."""
    values = (
        message.id,
        message.parent,
        message.role,
        utf8(message.content),
        message.created_at,
        utf8(message.model),
        utf8(message.reasoning),
        utf8(message.tool_text),
        message.state,
        json.dumps(dict(message.done)) if message.done else None,
        json.dumps(dict(message.error)) if message.error else None,
        message.trace,
        message.left_out,
    )
    marks = ", ".join("?" * (len(values) + 2))
    connection.execute(
        f"INSERT INTO messages({_COLUMNS}, conversation, owner) VALUES ({marks})"
        " ON CONFLICT(id) DO UPDATE SET content = excluded.content,"
        " reasoning = excluded.reasoning, tool_text = excluded.tool_text,"
        " state = excluded.state, done = excluded.done, error = excluded.error,"
        " trace = excluded.trace, left_out = excluded.left_out",
        (*values, conversation, os.getpid()),
    )
    for position, file in enumerate(message.attachments):
        connection.execute(
            "INSERT OR IGNORE INTO attachments VALUES (?, ?, ?, ?)",
            (message.id, position, utf8(file.name), utf8(file.text)),
        )


def search(query: str) -> tuple[str, tuple[str, ...]]:
    """The WHERE of a search, and its values."""
    if not query:
        return "", ()
    anywhere = f"%{like(query)}%"
    if len(query) < _SHORTEST_TRIGRAM:  # the index knows no words this short
        found = "SELECT conversation FROM messages WHERE content LIKE ? ESCAPE '\\'"
        value = anywhere
    else:
        found = (
            "SELECT conversation FROM messages WHERE rowid IN"
            " (SELECT rowid FROM messages_found WHERE messages_found MATCH ?)"
        )
        value = '"' + query.replace('"', '""') + '"'
    where = f"WHERE c.title LIKE ? ESCAPE '\\' OR c.id IN ({found})"
    return where, (anywhere, value)


def like(text: str) -> str:
    """A text as LIKE finds it literally, after a backslash as the escape."""
    for character in "\\%_":
        text = text.replace(character, "\\" + character)
    return text


def utf8(text: str) -> str:
    """A text SQLite can keep: a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace").decode()
