# SPDX-License-Identifier: Apache-2.0
"""Keeps a session on disk while it goes on, without making anybody wait.

``note`` is called after every change and hands what changed to a thread that owns the
writing. An answer that is being written is kept every second or every two kilobytes, so
that is the most a crash can take. Everything else is kept at once.
"""

from __future__ import annotations

import queue
import secrets
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from splashpy.chat.entries import Message, Reply, UserMessage
from splashpy.chat.saved import (
    SavedConversation,
    SavedMessage,
    restore,
    save_message,
    title_of,
)
from splashpy.chat.session import Session
from splashpy.chat.store import Draft, Store
from splashpy.chat.tree import Tree
from splashpy.errors import DatabaseError, SplashError

_CHECKPOINT_SECONDS = 1.0
_CHECKPOINT_CHARACTERS = 2000
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford: no I, L, O, U
_RANDOM_BITS = 80

UNSAID = ""
"""Stands for the id of a conversation in which nothing was said yet."""

_T = TypeVar("_T")


def utc_now() -> str:
    """The present in UTC: ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_id(at: str, random_bits: Callable[[int], int] = secrets.randbits) -> str:
    """A ULID: 26 characters that sort by time.

    Args:
        at: UTC, ISO 8601.
        random_bits: as ``secrets.randbits``.
    """
    milliseconds = int(datetime.fromisoformat(at).timestamp() * 1000)
    number = milliseconds << _RANDOM_BITS | random_bits(_RANDOM_BITS)
    return "".join(_DIGITS[number >> shift & 31] for shift in range(125, -1, -5))


_Job = Callable[[Store], object] | threading.Event
"""A change of the store, or somebody who waits for the ones before."""


@dataclass(slots=True)
class _Kept:
    """What is on disk of one message."""

    id: str
    created_at: str
    revision: int = -1
    at: float = float("-inf")
    characters: int = 0


class Keeper:
    """Writes one session to a store.

    Args:
        path: the database.
        now: the present, UTC in ISO 8601.

    Attributes:
        conversation: id of the present one; None while nothing was said.
    """

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], str] = utc_now,
    ):
        self.conversation: str | None = None
        self._listener: Callable[[str], object] | None = None
        self._path = path
        self._now = now
        self._problems: list[str] = []
        self._tree: Tree | None = None
        self._created_at = ""
        self._facts: object = None
        self._kept: dict[Message, _Kept] = {}
        self._draft = Draft()
        self._store: Store | None = None
        self._failure: SplashError | None = None
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._opened = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)
        self._thread.start()

    # --- what goes on -------------------------------------------------------------

    def note(self, session: Session, now: float) -> None:
        """Keep what changed.

        Args:
            session: after the change.
            now: seconds of any steady clock.
        """
        if session.tree is not self._tree:
            self._begin(session.tree)
        changed = [m for m in session.tree.messages if self._due(m, now)]
        facts = (session.tree.leaf, session.model_name, session.settings)
        if not session.tree.messages or not (changed or facts != self._facts):
            return
        self._facts = facts
        if self.conversation is None:
            self._created_at = self._now()
            self.conversation = new_id(self._created_at)
            self._jobs.put(lambda store: store.write_draft(UNSAID, Draft()))
        records = [self._record(message, now) for message in changed]
        conversation = self._conversation_record(session)
        self._jobs.put(lambda store: store.write(conversation, records))

    def note_draft(self, draft: Draft) -> None:
        """Keep what is written and not sent yet; only the latest one counts."""
        if draft != self._draft:
            self._draft = draft
            name = self.conversation or UNSAID
            self._jobs.put(lambda store: store.write_draft(name, draft))

    def note_prompt(self, text: str) -> None:
        """Keep a prompt in the history of prompts."""
        self._jobs.put(lambda store: store.write_prompt(text))

    def do(self, change: Callable[[Store], object]) -> None:
        """Change something else, in order with the rest, without waiting."""
        self._jobs.put(change)

    def listen(self, listener: Callable[[str], object]) -> None:
        """Be told of problems, earlier ones too, once for each kind.

        Args:
            listener: called from any thread.
        """
        with self._telling:
            self._listener = listener
            for sentence in self._problems:
                listener(sentence)

    # --- what was -----------------------------------------------------------------

    def ask(self, question: Callable[[Store], _T]) -> _T:
        """Read something, now.

        Raises:
            SplashError: the database cannot be used, or holds no such thing.
        """
        self._opened.wait()
        with self._lock:
            if self._store is None:
                assert self._failure is not None
                raise self._failure
            try:
                return question(self._store)
            except sqlite3.Error as error:
                raise DatabaseError(
                    f"saved conversations cannot be read: {self._path}", why=str(error)
                ) from None

    def open(self, name: str) -> tuple[SavedConversation, Tree, Draft]:
        """Read a conversation and go on with it.

        Args:
            name: its id.

        Raises:
            SplashError: it cannot be read.
        """
        self.flush()
        saved = self.ask(lambda store: store.read(name))
        draft = self.ask(lambda store: store.draft(name))
        tree, names = restore(saved)
        self._begin(tree)
        self.conversation, self._created_at = saved.id, saved.created_at
        created = {message.id: message.created_at for message in saved.messages}
        for message, at in names.items():
            self._kept[message] = _Kept(at, created[at], message.revision)
        self._draft = draft
        return saved, tree, draft

    def flush(self) -> None:
        """Wait until everything noted so far is on disk."""
        done = threading.Event()
        self._jobs.put(done)
        while self._thread.is_alive() and not done.wait(0.1):
            pass

    def close(self) -> None:
        """Finish writing and close the file."""
        self._jobs.put(None)
        self._thread.join()

    # --- inside -------------------------------------------------------------------

    def _begin(self, tree: Tree) -> None:
        self._tree = tree
        self.conversation = None
        self._facts = None
        self._kept = {}
        self._draft = Draft()

    def _due(self, message: Message, now: float) -> bool:
        kept = self._kept.get(message)
        if kept is None or kept.revision == message.revision:
            return kept is None
        if isinstance(message, UserMessage) or message.state != "writing":
            return True
        grown = len(message.text) + len(message.reasoning) - kept.characters
        return now - kept.at >= _CHECKPOINT_SECONDS or grown >= _CHECKPOINT_CHARACTERS

    def _record(self, message: Message, now: float) -> SavedMessage:
        kept = self._kept.get(message)
        if kept is None:
            at = self._now()
            kept = self._kept[message] = _Kept(new_id(at), at)
        kept.revision, kept.at = message.revision, now
        if isinstance(message, Reply):
            kept.characters = len(message.text) + len(message.reasoning)
        parent = self._kept[message.parent].id if message.parent else None
        return save_message(
            message, name=kept.id, parent=parent, created_at=kept.created_at
        )

    def _conversation_record(self, session: Session) -> SavedConversation:
        first = session.tree.messages[0]
        leaf = session.tree.leaf
        return SavedConversation(
            id=self.conversation or "",
            title=title_of(first.text),
            created_at=self._created_at,
            model=session.model_name,
            system=session.settings.system,
            parameters=session.settings.parameters(),
            leaf=self._kept[leaf].id if leaf is not None else None,
        )

    # --- the thread ---------------------------------------------------------------

    def _run(self) -> None:
        try:
            store = Store(self._path, now=self._now)
            store.check()
            store.recover()
            self._store = store
        except SplashError as error:
            self._failure = error
            self._tell(error.message)
        self._opened.set()
        if self._store is not None and self._store.moved_to is not None:
            self._tell(
                "saved conversations were damaged; they are kept in "
                f"{self._store.moved_to}, and a new file was started"
            )
        while (job := self._jobs.get()) is not None:
            self._work(job)
        if self._store is not None:
            self._store.close()

    def _work(self, job: _Job) -> None:
        if isinstance(job, threading.Event):
            job.set()
            return
        if self._store is None:
            return
        try:
            with self._lock:
                job(self._store)
        except SplashError as error:
            self._tell(f"{error.message}: {error.why}" if error.why else error.message)
        except Exception as error:  # noqa: BLE001 - without the thread nothing is kept
            self._tell(f"something was not saved: {error!r}")

    def _tell(self, sentence: str) -> None:
        with self._telling:
            if sentence in self._problems:
                return
            self._problems.append(sentence)
            if self._listener is not None:
                self._listener(sentence)
