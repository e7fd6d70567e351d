# SPDX-License-Identifier: Apache-2.0
"""Saved conversations: one SQLite file that several chats may use at once.

Messages are only ever added or completed, never replaced by others, so two programs
that go on with the same conversation add two branches and neither loses a word. The
directory and the file are readable by their owner alone.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splashpy.chat.entries import Attachment
from splashpy.chat.saved import SavedConversation, SavedMessage
from splashpy.errors import DatabaseError, NotFoundError

SCHEMA = 1
_PATIENCE_SECONDS = 5.0  # how long another program may hold the file
_SHORTEST_TRIGRAM = 3  # characters; shorter words are not in the search index
_KEPT_PROMPTS = 2000
_TABLES = """
CREATE TABLE conversations(
  id TEXT PRIMARY KEY, title TEXT NOT NULL, created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL, model TEXT NOT NULL, system TEXT,
  parameters TEXT NOT NULL, leaf TEXT, pinned INTEGER NOT NULL DEFAULT 0);
CREATE TABLE messages(
  id TEXT PRIMARY KEY,
  conversation TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
  parent TEXT, role TEXT NOT NULL, content TEXT NOT NULL, created_at TEXT NOT NULL,
  model TEXT NOT NULL, reasoning TEXT NOT NULL, tool_text TEXT NOT NULL,
  state TEXT NOT NULL, done TEXT, error TEXT, trace BLOB, left_out INTEGER NOT NULL,
  owner INTEGER);
CREATE INDEX messages_of ON messages(conversation);
CREATE TABLE attachments(
  message TEXT NOT NULL REFERENCES messages(id) ON DELETE CASCADE,
  position INTEGER NOT NULL, name TEXT NOT NULL, text TEXT NOT NULL,
  PRIMARY KEY(message, position));
CREATE TABLE drafts(
  conversation TEXT PRIMARY KEY, text TEXT NOT NULL, queued TEXT);
CREATE TABLE prompts(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE VIRTUAL TABLE messages_found USING fts5(
  content, content='messages', content_rowid='rowid', tokenize='trigram');
CREATE TRIGGER message_added AFTER INSERT ON messages BEGIN
  INSERT INTO messages_found(rowid, content) VALUES (new.rowid, new.content);
END;
CREATE TRIGGER message_gone AFTER DELETE ON messages BEGIN
  INSERT INTO messages_found(messages_found, rowid, content)
  VALUES ('delete', old.rowid, old.content);
END;
CREATE TRIGGER message_changed AFTER UPDATE OF content ON messages BEGIN
  INSERT INTO messages_found(messages_found, rowid, content)
  VALUES ('delete', old.rowid, old.content);
  INSERT INTO messages_found(rowid, content) VALUES (new.rowid, new.content);
END;
"""
_COLUMNS = (
    "id, parent, role, content, created_at, model, reasoning, tool_text, state, done,"
    " error, trace, left_out"
)


@dataclass(frozen=True, slots=True)
class Summary:
    """One row of a list of conversations."""

    id: str
    title: str
    updated_at: str
    model: str
    messages: int
    pinned: bool


@dataclass(frozen=True, slots=True)
class Draft:
    """What was written and not sent: in the editor, and waiting to be sent."""

    text: str = ""
    queued: str | None = None

    @property
    def unsent(self) -> str:
        """All of it, as it goes back into an editor."""
        return "\n\n".join(part for part in (self.queued, self.text) if part)


class Store:
    """The open file. One thread uses it.

    Args:
        path: the file; it and its directory are made when missing.
        now: the present, UTC in ISO 8601.

    Attributes:
        moved_to: where a damaged file was moved when this one was started afresh.

    Raises:
        DatabaseError: the file cannot be used, or a newer splashpy made it.
    """

    def __init__(self, path: Path, *, now: Callable[[], str]):
        self.path = path
        self.moved_to: Path | None = None
        self._now = now
        try:
            self._connection = self._opened()
        except sqlite3.DatabaseError as error:
            if not _damaged(error):
                raise _unusable(path, error) from None
            self.moved_to = self._moved_away()
            self._connection = self._opened()
        except OSError as error:
            raise _unusable(path, error) from None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    # --- reading ------------------------------------------------------------------

    def summaries(self, query: str = "") -> list[Summary]:
        """Conversations, pinned ones first, then the latest.

        Args:
            query: a text in the title or a message; empty lists all.
        """
        where, values = _search(query.strip())
        rows = self._connection.execute(
            "SELECT c.id, c.title, c.updated_at, c.model, c.pinned,"
            " (SELECT count(*) FROM messages m WHERE m.conversation = c.id)"
            f" FROM conversations c {where}"
            " ORDER BY c.pinned DESC, c.updated_at DESC, c.id DESC",
            values,
        )
        return [
            Summary(name, title, at, model, count, bool(pinned))
            for name, title, at, model, pinned, count in rows
        ]

    def find(self, word: str) -> str:
        """The id meant by an id, the beginning of one, or a text to search for.

        Raises:
            NotFoundError: nothing is found.
        """
        row = self._connection.execute(
            "SELECT id FROM conversations WHERE id LIKE ? ESCAPE '\\'"
            " ORDER BY id LIMIT 1",
            (_like(word.upper()) + "%",),
        ).fetchone()
        found = [row[0]] if row else [summary.id for summary in self.summaries(word)]
        if not found:
            raise NotFoundError(
                f"no saved conversation is or contains {word!r}",
                fix=["splashpy history list"],
            )
        return found[0]

    def latest(self) -> str | None:
        """The conversation that was changed last."""
        row = self._connection.execute(
            "SELECT id FROM conversations ORDER BY updated_at DESC, id DESC LIMIT 1"
        ).fetchone()
        return row[0] if row else None

    def read(self, name: str) -> SavedConversation:
        """A whole conversation.

        Args:
            name: its id.

        Raises:
            NotFoundError: there is none with this id.
        """
        row = self._connection.execute(
            "SELECT title, created_at, model, system, parameters, leaf"
            " FROM conversations WHERE id = ?",
            (name,),
        ).fetchone()
        if row is None:
            raise NotFoundError(f"there is no saved conversation {name}")
        title, created_at, model, system, parameters, leaf = row
        return SavedConversation(
            id=name,
            title=title,
            created_at=created_at,
            model=model,
            system=system,
            parameters=json.loads(parameters),
            leaf=leaf,
            messages=tuple(self._messages(name)),
        )

    def _messages(self, conversation: str) -> Iterator[SavedMessage]:
        attached = self._attachments(conversation)
        rows = self._connection.execute(
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
            yield SavedMessage(
                **fields, attachments=tuple(attached.get(fields["id"], ()))
            )

    def _attachments(self, conversation: str) -> dict[str, list[Attachment]]:
        rows = self._connection.execute(
            "SELECT a.message, a.name, a.text FROM attachments a JOIN messages m"
            " ON m.id = a.message WHERE m.conversation = ? ORDER BY a.position",
            (conversation,),
        )
        found: dict[str, list[Attachment]] = {}
        for message, name, text in rows:
            found.setdefault(message, []).append(Attachment(name, text))
        return found

    def draft(self, conversation: str) -> Draft:
        """What was written there and not sent."""
        row = self._connection.execute(
            "SELECT text, queued FROM drafts WHERE conversation = ?", (conversation,)
        ).fetchone()
        return Draft(*row) if row else Draft()

    def prompts(self) -> list[str]:
        """Everything that was sent or cleared, the oldest first."""
        rows = self._connection.execute("SELECT text FROM prompts ORDER BY id")
        return [text for (text,) in rows]

    # --- writing ------------------------------------------------------------------

    def write(
        self, conversation: SavedConversation, messages: Sequence[SavedMessage]
    ) -> None:
        """Keep a conversation's facts and these of its messages, all or nothing.

        Args:
            conversation: its own ``messages`` are not looked at.
            messages: new or changed ones, parents first.
        """
        with self._changing() as connection:
            connection.execute(
                "INSERT INTO conversations"
                "(id, title, created_at, updated_at, model, system, parameters, leaf)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET"
                " updated_at = excluded.updated_at, model = excluded.model,"
                " system = excluded.system, parameters = excluded.parameters,"
                " leaf = excluded.leaf",
                (
                    conversation.id,
                    _utf8(conversation.title),
                    conversation.created_at,
                    self._now(),
                    _utf8(conversation.model),
                    conversation.system and _utf8(conversation.system),
                    json.dumps(dict(conversation.parameters)),
                    conversation.leaf,
                ),
            )
            for message in messages:
                _write_message(connection, conversation.id, message)

    def write_draft(self, conversation: str, draft: Draft) -> None:
        """Keep what is written and not sent; an empty draft is forgotten."""
        with self._changing() as connection:
            if not draft.text and draft.queued is None:
                connection.execute(
                    "DELETE FROM drafts WHERE conversation = ?", (conversation,)
                )
                return
            queued = None if draft.queued is None else _utf8(draft.queued)
            connection.execute(
                "INSERT OR REPLACE INTO drafts VALUES (?, ?, ?)",
                (conversation, _utf8(draft.text), queued),
            )

    def write_prompt(self, text: str) -> None:
        """Keep a prompt as the newest."""
        with self._changing() as connection:
            connection.execute("DELETE FROM prompts WHERE text = ?", (_utf8(text),))
            connection.execute("INSERT INTO prompts(text) VALUES (?)", (_utf8(text),))
            connection.execute(
                "DELETE FROM prompts WHERE id <= (SELECT max(id) FROM prompts) - ?",
                (_KEPT_PROMPTS,),
            )

    def rename(self, name: str, title: str) -> None:
        """Give a conversation another title."""
        with self._changing() as connection:
            connection.execute(
                "UPDATE conversations SET title = ? WHERE id = ?", (_utf8(title), name)
            )

    def pin(self, name: str, *, pinned: bool) -> None:
        """Keep a conversation at the top of the list, or no longer."""
        with self._changing() as connection:
            connection.execute(
                "UPDATE conversations SET pinned = ? WHERE id = ?", (pinned, name)
            )

    def delete(self, name: str) -> None:
        """Remove a conversation and all its messages."""
        with self._changing() as connection:
            connection.execute("DELETE FROM conversations WHERE id = ?", (name,))
            connection.execute("DELETE FROM drafts WHERE conversation = ?", (name,))

    def check(self) -> None:
        """Look through the whole file; start afresh when it is damaged.

        Raises:
            DatabaseError: a fresh file cannot be made either.
        """
        try:
            (found,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            found = str(error)
        if found == "ok":
            return
        self._connection.close()
        self.moved_to = self._moved_away()
        try:
            self._connection = self._opened()
        except (sqlite3.Error, OSError) as error:
            raise _unusable(self.path, error) from None

    def recover(self) -> int:
        """Mark answers whose program is gone as partial; returns how many."""
        rows = self._connection.execute(
            "SELECT DISTINCT owner FROM messages WHERE state = 'streaming'"
        ).fetchall()
        gone = [owner for (owner,) in rows if not _alive(owner)]
        with self._changing() as connection:
            return sum(
                connection.execute(
                    "UPDATE messages SET state = 'partial'"
                    " WHERE state = 'streaming' AND owner IS ?",
                    (owner,),
                ).rowcount
                for owner in gone
            )

    # --- the file -----------------------------------------------------------------

    def _opened(self) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.touch(mode=0o600)
        connection = sqlite3.connect(
            self.path, timeout=_PATIENCE_SECONDS, check_same_thread=False
        )
        connection.execute("PRAGMA foreign_keys = ON")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA:
            connection.close()
            raise DatabaseError(
                f"{self.path} was written by a newer splashpy",
                why=f"its format is {version}, this version knows {SCHEMA}",
                fix=["pip install --upgrade splashpy", "splashpy chat --no-save"],
            )
        if version < SCHEMA:
            connection.execute("PRAGMA journal_mode = WAL")
            _create(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def _moved_away(self) -> Path:
        stamp = self._now().replace(":", "").partition(".")[0]
        target = self.path.with_name(f"{self.path.name}.damaged-{stamp}")
        for suffix in ("", "-wal", "-shm"):
            part = self.path.with_name(self.path.name + suffix)
            if part.exists():
                part.replace(target.with_name(target.name + suffix))
        return target

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """A transaction.

        Raises:
            DatabaseError: it could not be written.
        """
        try:
            with self._connection as connection:
                yield connection
        except sqlite3.Error as error:
            raise _unusable(self.path, error) from None


@contextmanager
def opened(path: Path, *, now: Callable[[], str]) -> Iterator[Store]:
    """The store, for as long as a block runs.

    Raises:
        DatabaseError: the file cannot be used.
    """
    store = Store(path, now=now)
    try:
        yield store
    except sqlite3.Error as error:
        raise _unusable(path, error) from None
    finally:
        store.close()


def _create(connection: sqlite3.Connection) -> None:
    """Make the tables, unless another program just did."""
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < SCHEMA:
        # One statement at a time: executescript would end the transaction.
        for statement in _statements(_TABLES):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.commit()


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _write_message(
    connection: sqlite3.Connection, conversation: str, message: SavedMessage
) -> None:
    values = (
        message.id,
        message.parent,
        message.role,
        _utf8(message.content),
        message.created_at,
        _utf8(message.model),
        _utf8(message.reasoning),
        _utf8(message.tool_text),
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
            (message.id, position, _utf8(file.name), _utf8(file.text)),
        )


def _search(query: str) -> tuple[str, tuple[str, ...]]:
    """The WHERE of a search, and its values."""
    if not query:
        return "", ()
    like = f"%{_like(query)}%"
    if len(query) < _SHORTEST_TRIGRAM:  # the index knows no words this short
        found = "SELECT conversation FROM messages WHERE content LIKE ? ESCAPE '\\'"
        value = like
    else:
        found = (
            "SELECT conversation FROM messages WHERE rowid IN"
            " (SELECT rowid FROM messages_found WHERE messages_found MATCH ?)"
        )
        value = '"' + query.replace('"', '""') + '"'
    where = f"WHERE c.title LIKE ? ESCAPE '\\' OR c.id IN ({found})"
    return where, (like, value)


def _like(text: str) -> str:
    for character in "\\%_":
        text = text.replace(character, "\\" + character)
    return text


def _utf8(text: str) -> str:
    """A text SQLite can keep: a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def _alive(process: int | None) -> bool:
    if process is None:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _damaged(error: sqlite3.DatabaseError) -> bool:
    text = str(error)
    return "malformed" in text or "not a database" in text


def _unusable(path: Path, error: Exception) -> DatabaseError:
    return DatabaseError(
        f"saved conversations cannot be used: {path}",
        why=str(error),
        fix=["splashpy chat --no-save"],
    )
