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

from splashpy.chat.database import damaged, move_away, open_database, unusable
from splashpy.chat.entries import Attachment
from splashpy.chat.rows import like, read_messages, search, utf8, write_message
from splashpy.chat.saved import SavedConversation, SavedMessage
from splashpy.errors import NotFoundError, UsageError

_KEPT_PROMPTS = 2000
_TOLD = 3  # of several that may be meant


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
    files: tuple[Attachment, ...] = ()

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
            self._connection = open_database(self.path)
        except sqlite3.DatabaseError as error:
            if not damaged(error):
                raise unusable(path, error) from None
            self.moved_to = move_away(self.path, self._now())
            self._connection = open_database(self.path)
        except OSError as error:
            raise unusable(path, error) from None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    # --- reading ------------------------------------------------------------------

    def summaries(self, query: str = "") -> list[Summary]:
        """Conversations, pinned ones first, then the latest.

        Args:
            query: a text in the title or a message; empty lists all.
        """
        where, values = search(query.strip())
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
        return self._meant(word)[0]

    def only(self, word: str) -> str:
        """The same, where it has to be clear.

        Raises:
            NotFoundError: nothing is found.
            UsageError: more than one conversation is.
        """
        found = self._meant(word)
        if len(found) > 1:
            told = ", ".join(found[:_TOLD])
            raise UsageError(
                f"{len(found)} saved conversations are or contain {word!r}",
                why=told + (", …" if len(found) > _TOLD else ""),
                fix=["splashpy history list", "name one by its whole id"],
            )
        return found[0]

    def _meant(self, word: str) -> list[str]:
        rows = self._connection.execute(
            "SELECT id FROM conversations WHERE id LIKE ? ESCAPE '\\' ORDER BY id",
            (like(word.upper()) + "%",),
        ).fetchall()
        found = [name for (name,) in rows]
        if word.upper() in found:
            return [word.upper()]
        found = found or [summary.id for summary in self.summaries(word)]
        if not found:
            raise NotFoundError(
                f"no saved conversation is or contains {word!r}",
                fix=["splashpy history list"],
            )
        return found

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
            messages=tuple(read_messages(self._connection, name)),
        )

    def draft(self, conversation: str) -> Draft:
        """What was written there and not sent."""
        row = self._connection.execute(
            "SELECT text, queued FROM drafts WHERE conversation = ?", (conversation,)
        ).fetchone()
        files = self._connection.execute(
            "SELECT name, text FROM draft_files WHERE conversation = ?"
            " ORDER BY position",
            (conversation,),
        )
        if row is None:
            return Draft()
        text, queued = row
        return Draft(text, queued, tuple(Attachment(*file) for file in files))

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
                    utf8(conversation.title),
                    conversation.created_at,
                    self._now(),
                    utf8(conversation.model),
                    conversation.system and utf8(conversation.system),
                    json.dumps(dict(conversation.parameters)),
                    conversation.leaf,
                ),
            )
            for message in messages:
                write_message(connection, conversation.id, message)

    def write_draft(self, conversation: str, draft: Draft) -> None:
        """Keep what is written and not sent; an empty draft is forgotten."""
        with self._changing() as connection:
            if draft == Draft():
                connection.execute(
                    "DELETE FROM drafts WHERE conversation = ?", (conversation,)
                )
                return
            queued = None if draft.queued is None else utf8(draft.queued)
            connection.execute(
                "INSERT INTO drafts VALUES (?, ?, ?) ON CONFLICT(conversation)"
                " DO UPDATE SET text = excluded.text, queued = excluded.queued",
                (conversation, utf8(draft.text), queued),
            )
            if self.draft(conversation).files != draft.files:
                connection.execute(
                    "DELETE FROM draft_files WHERE conversation = ?", (conversation,)
                )
                connection.executemany(
                    "INSERT INTO draft_files VALUES (?, ?, ?, ?)",
                    [
                        (conversation, number, utf8(file.name), utf8(file.text))
                        for number, file in enumerate(draft.files)
                    ],
                )

    def write_prompt(self, text: str) -> None:
        """Keep a prompt as the newest."""
        with self._changing() as connection:
            connection.execute("DELETE FROM prompts WHERE text = ?", (utf8(text),))
            connection.execute("INSERT INTO prompts(text) VALUES (?)", (utf8(text),))
            connection.execute(
                "DELETE FROM prompts WHERE id <= (SELECT max(id) FROM prompts) - ?",
                (_KEPT_PROMPTS,),
            )

    def rename(self, name: str, title: str) -> None:
        """Give a conversation another title."""
        with self._changing() as connection:
            connection.execute(
                "UPDATE conversations SET title = ? WHERE id = ?", (utf8(title), name)
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
            DatabaseError: it cannot be read now, or a fresh file cannot be made either.
        """
        try:
            (found,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            if not damaged(error):
                raise unusable(self.path, error) from None
            found = str(error)
        if found == "ok":
            return
        self._connection.close()
        self.moved_to = move_away(self.path, self._now())
        try:
            self._connection = open_database(self.path)
        except (sqlite3.Error, OSError) as error:
            raise unusable(self.path, error) from None

    def recover(self) -> int:
        """Mark answers whose program is gone as partial; returns how many."""
        with self._changing() as connection:
            rows = connection.execute(
                "SELECT DISTINCT owner FROM messages WHERE state = 'streaming'"
            ).fetchall()
            gone = [owner for (owner,) in rows if not _alive(owner)]
            return sum(
                connection.execute(
                    "UPDATE messages SET state = 'partial'"
                    " WHERE state = 'streaming' AND owner IS ?",
                    (owner,),
                ).rowcount
                for owner in gone
            )

    # --- the file -----------------------------------------------------------------

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
            raise unusable(self.path, error) from None


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
        raise unusable(path, error) from None
    finally:
        store.close()


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
