# SPDX-License-Identifier: Apache-2.0
"""A session on disk while it goes on, and after it was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.chat.entries import Attachment, Reply
from splashpy.chat.keeper import UNSAID, Keeper, new_id
from splashpy.chat.session import Session
from splashpy.chat.settings import ChatSettings
from splashpy.chat.store import Draft, Store
from splashpy.errors import DatabaseError
from splashpy.protocol import (
    Cycle,
    Done,
    Failure,
    Generate,
    Load,
    Piece,
    Ready,
    Sampling,
    Usage,
)

READY = Ready(model="m", context_max=100, block_size=8)


class Clock:
    """A wall clock a test moves; every look is a millisecond later."""

    def __init__(self) -> None:
        self.milliseconds = 0

    def __call__(self) -> str:
        self.milliseconds += 1
        seconds, rest = divmod(self.milliseconds, 1000)
        return f"2026-03-01T12:00:{seconds:02}.{rest:03}Z"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def keeper(path: Path) -> Iterator[Keeper]:
    keeper = Keeper(path, now=Clock())
    yield keeper
    keeper.close()


def ready_session(**settings: object) -> Session:
    session = Session(
        Load(model="/models/demo", name="demo"),
        ChatSettings(**settings),
        time_of_day=lambda: "14:02",
    )
    session.apply(READY, 0.0)
    return session


def ask(session: Session, text: str) -> str:
    (command,) = session.submit(text, 0.0)
    assert isinstance(command, Generate)
    return command.id


def write(session: Session, request: str, text: str, *, now: float = 0.0) -> None:
    piece = Piece(text, "t", "c")
    cycle = Cycle(
        id=request,
        i=1,
        drafted=3,
        accepted=2,
        committed=3,
        draft_ms=1,
        verify_ms=1,
        pieces=(piece,),
    )
    session.apply(cycle, now)


def finish(session: Session, request: str) -> None:
    usage = Usage(prompt=5, completion=3)
    session.apply(Done(id=request, reason="stop", usage=usage), 1.0)


def contents(keeper: Keeper) -> list[str]:
    keeper.flush()
    name = keeper.conversation
    assert name is not None
    return [m.content for m in keeper.ask(lambda s: s.read(name)).messages]


def test_a_conversation_comes_back_as_it_was(keeper: Keeper, path: Path) -> None:
    session = ready_session(
        system="Be brief.", sampling=Sampling(temperature=0.5), effort="low"
    )
    request = ask(session, "one")
    write(session, request, "first")
    finish(session, request)
    session.retry(2.0)
    assert session.reply is not None
    session.apply(Failure(id=session.reply.request_id, code="E-X", message="no"), 2.0)
    keeper.note(session, 3.0)
    keeper.flush()
    assert keeper.conversation is not None

    other = Keeper(path, now=Clock())
    saved, tree, _ = other.open(keeper.conversation)
    other.close()

    assert saved.title == "one"
    assert saved.system == "Be brief."
    assert ChatSettings().with_parameters(saved.parameters).sampling.temperature == 0.5
    assert ChatSettings().with_parameters(saved.parameters).effort == "low"
    first, second = (m for m in tree.messages if isinstance(m, Reply))
    assert (first.text, first.place, first.trace) == ("first", (1, 2), b"\x32")
    assert first.done is not None
    assert first.done.usage.completion == 3
    assert (second.state, second.problem and second.problem.code) == ("failed", "E-X")
    assert tree.leaf is second


def test_an_answer_is_kept_every_second_or_two_kilobytes(keeper: Keeper) -> None:
    session = ready_session()
    request = ask(session, "one")
    write(session, request, "a")
    keeper.note(session, 10.0)
    write(session, request, "b")
    keeper.note(session, 10.5)
    assert contents(keeper) == ["one", "a"]

    keeper.note(session, 11.0)
    assert contents(keeper) == ["one", "ab"]

    write(session, request, "c" * 2000)
    keeper.note(session, 11.1)
    assert contents(keeper)[1] == "ab" + "c" * 2000

    write(session, request, "d")
    finish(session, request)
    keeper.note(session, 11.2)
    assert contents(keeper)[1].endswith("cd")


def test_another_conversation_gets_another_id(keeper: Keeper) -> None:
    session = ready_session()
    request = ask(session, "one")
    finish(session, request)
    keeper.note(session, 1.0)
    first = keeper.conversation
    session.new_conversation(2.0)
    keeper.note(session, 2.0)
    assert keeper.conversation is None

    ask(session, "two")
    keeper.note(session, 3.0)
    keeper.flush()

    titles = [s.title for s in keeper.ask(lambda store: store.summaries())]
    assert titles == ["two", "one"]
    assert first != keeper.conversation


def test_a_draft_waits_until_it_is_said(keeper: Keeper) -> None:
    keeper.note_draft(Draft("half a thou"))
    keeper.flush()
    assert keeper.ask(lambda s: s.draft(UNSAID)) == Draft("half a thou")

    session = ready_session()
    ask(session, "half a thought")
    keeper.note(session, 1.0)
    keeper.note_draft(Draft("", "next"))
    keeper.flush()

    name = keeper.conversation or ""
    assert keeper.ask(lambda s: s.draft(UNSAID)) == Draft()
    assert keeper.ask(lambda s: s.draft(name)).unsent == "next"


KILLED = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_keeper import Attachment, Draft, Keeper, ask, ready_session, write
keeper = Keeper(Path(sys.argv[1]))
session = ready_session()
write(session, ask(session, "question"), "half an answer")
keeper.note(session, 1.0)
keeper.note_draft(Draft("next thought", "waiting", (Attachment("a.md", "words"),)))
keeper.flush()
print("kept", flush=True)
time.sleep(60)
"""


def test_what_a_killed_chat_had_said_is_there_at_the_next_start(path: Path) -> None:
    here = str(Path(__file__).parent)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path), here], stdout=subprocess.PIPE
    ) as chat:
        assert chat.stdout is not None
        assert chat.stdout.readline() == b"kept\n"
        os.kill(chat.pid, signal.SIGKILL)

    keeper = Keeper(path)
    name = keeper.ask(Store.latest)
    assert name is not None
    _, tree, draft = keeper.open(name)
    keeper.close()

    answer = tree.messages[-1]
    assert isinstance(answer, Reply)
    assert (answer.text, answer.state) == ("half an answer", "partial")
    assert draft.unsent == "waiting\n\nnext thought"
    assert draft.files == (Attachment("a.md", "words"),)


def test_a_database_that_cannot_be_used_is_told_once_and_nothing_waits(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    told: list[str] = []
    keeper = Keeper(tmp_path / "file" / "chats.db")
    keeper.listen(told.append)
    session = ready_session()
    ask(session, "one")
    keeper.note(session, 1.0)
    keeper.flush()

    with pytest.raises(DatabaseError):
        keeper.ask(lambda store: store.summaries())
    keeper.close()
    keeper.listen(told.append)
    assert len(told) == 2
    assert len(set(told)) == 1


STEPS: dict[str, Callable[[Session], object]] = {
    "ask": lambda s: s.accepts and s.submit("question", 0.0),
    "write": lambda s: s.reply and write(s, s.reply.request_id, "text "),
    "finish": lambda s: s.reply and finish(s, s.reply.request_id),
    "retry": lambda s: s.retry(0.0),
    "branch": lambda s: [
        s.branch(m) for m in s.tree.messages[:3] if isinstance(m, Reply)
    ],
    "back": lambda s: [s.switch(m, -1) for m in s.tree.path()],
}


@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=25))
def test_whatever_happens_the_disk_agrees_with_the_session(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(Path(folder) / "chats.db", now=Clock())
        session = ready_session()
        for now, step in enumerate(["ask", *steps]):
            STEPS[step](session)
            keeper.note(session, now * 2.0)
        assert keeper.conversation is not None
        _, tree, _ = keeper.open(keeper.conversation)
        keeper.close()

    assert [m.text for m in tree.path()] == [m.text for m in session.tree.path()]
    assert [(m.text, m.place) for m in tree.messages] == [
        (m.text, m.place) for m in session.tree.messages
    ]


def test_a_change_that_fails_ends_nothing_but_itself(keeper: Keeper) -> None:
    told: list[str] = []
    keeper.listen(told.append)

    keeper.do(lambda store: [][0])
    keeper.do(lambda store: store.write_prompt("later"))
    keeper.flush()

    assert keeper.ask(lambda store: store.prompts()) == ["later"]
    assert "not saved" in told[0]


def test_ids_sort_by_time() -> None:
    early = new_id("2026-03-01T12:00:00.000Z", lambda bits: 2**bits - 1)
    late = new_id("2026-03-01T12:00:00.001Z", lambda bits: 0)

    assert early < late
    assert len(early) == 26
    # The example of the ULID specification: ulid(1469918176385).
    assert new_id("2016-07-30T22:36:16.385Z").startswith("01ARYZ6S41")
