# SPDX-License-Identifier: Apache-2.0
"""The SQLite file of saved conversations: its tables, opening it, and damage.

The directory and the file are readable by their owner alone. A file that is damaged is
moved aside, never deleted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from splashpy.errors import DatabaseError

SCHEMA = 2
_PATIENCE_SECONDS = 5.0  # how long another program may hold the file
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
_SINCE_2 = """
CREATE TABLE draft_files(
  conversation TEXT NOT NULL REFERENCES drafts(conversation) ON DELETE CASCADE,
  position INTEGER NOT NULL, name TEXT NOT NULL, text TEXT NOT NULL,
  PRIMARY KEY(conversation, position));
"""


def open_database(path: Path) -> sqlite3.Connection:
    """The open file; it, its directory and its tables are made when missing.

    Raises:
        DatabaseError: a newer splashpy made it.
        sqlite3.Error, OSError: it cannot be used.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    connection = sqlite3.connect(
        path, timeout=_PATIENCE_SECONDS, check_same_thread=False
    )
    connection.execute("PRAGMA foreign_keys = ON")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        connection.close()
        raise DatabaseError(
            f"{path} was written by a newer splashpy",
            why=f"its format is {version}, this version knows {SCHEMA}",
            fix=["pip install --upgrade splashpy", "splashpy chat --no-save"],
        )
    if version < SCHEMA:
        connection.execute("PRAGMA journal_mode = WAL")
        _bring_up_to_date(connection)
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def move_away(path: Path, at: str) -> Path:
    """Move a damaged file and its companions aside; returns where to.

    Args:
        path: of the file.
        at: the present, UTC in ISO 8601.
    """
    stamp = at.replace(":", "").partition(".")[0]
    target = path.with_name(f"{path.name}.damaged-{stamp}")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.replace(target.with_name(target.name + suffix))
    return target


def _bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Make the tables that are missing, unless another program just did."""
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < SCHEMA:
        # One statement at a time: executescript would end the transaction.
        for statement in _statements(_SINCE_2 if version else _TABLES + _SINCE_2):
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


def damaged(error: sqlite3.DatabaseError) -> bool:
    """Whether an error means that the file itself is broken."""
    text = str(error)
    return "malformed" in text or "not a database" in text


def unusable(path: Path, error: Exception) -> DatabaseError:
    """The error of a file that cannot be used, for a person."""
    return DatabaseError(
        f"saved conversations cannot be used: {path}",
        why=str(error),
        fix=["splashpy chat --no-save"],
    )
