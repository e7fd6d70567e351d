# SPDX-License-Identifier: Apache-2.0
"""The chat in plain lines."""

from __future__ import annotations

import io
import signal
from pathlib import Path

import pytest
from chat.scripted import Script

from splashpy.chat.keeper import Keeper
from splashpy.chat.line_mode import run_plain
from splashpy.chat.settings import ChatSettings
from splashpy.client.replay import ReplayClient, Timed
from splashpy.errors import EngineDiedError
from splashpy.protocol import Cancel, Command, Failure, Generate, Load, LoadProgress


class Interrupting(io.StringIO):
    """Output during which ctrl-c is pressed, once, after a text was written."""

    def __init__(self, after: str) -> None:
        super().__init__()
        self.after = after
        self.pressed = 0

    def write(self, text: str) -> int:
        count = super().write(text)
        if self.after in text and not self.pressed:
            self.pressed += 1
            signal.raise_signal(signal.SIGINT)
        return count


def talk(
    typed: str,
    *engines: list[Timed] | ReplayClient,
    first_message: str | None = None,
    stdout: io.StringIO | None = None,
    keeper: Keeper | None = None,
    resume: str | None = None,
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a conversation."""
    waiting = list(engines)
    out, err = stdout or io.StringIO(), io.StringIO()

    def connect() -> ReplayClient:
        engine = waiting.pop(0)
        return engine if isinstance(engine, ReplayClient) else ReplayClient(engine)

    code = run_plain(
        connect,
        Load(model="/models/demo", name="demo"),
        settings=ChatSettings(),
        first_message=first_message,
        keeper=keeper,
        resume=resume,
        stdin=io.StringIO(typed),
        stdout=out,
        stderr=err,
    )
    return code, out.getvalue(), err.getvalue()


def test_a_question_is_answered_between_prompts(script: Script) -> None:
    code, out, err = talk("hi\n", script.started() + script.answer("Hello ", "you."))

    assert code == 0
    assert out == "> demo:\nHello you.\n> \n"
    assert "2 tokens · 1.0 tok/s · τ 4.00 · first token 0.28 s" in err


def test_the_first_message_is_answered_before_anything_is_asked(script: Script) -> None:
    _, out, _ = talk("", script.started() + script.answer("Yes."), first_message="ok?")

    assert out == "> ok?\ndemo:\nYes.\n> \n"


@pytest.mark.parametrize(
    "typed", ['"""\none\n\ntwo\n"""\n', "one\\\n\\\ntwo\n"], ids=["quotes", "backslash"]
)
def test_a_message_may_have_several_lines(script: Script, typed: str) -> None:
    sent: list[Command] = []

    class Listening(ReplayClient):
        def send(self, command: Command) -> None:
            sent.append(command)
            super().send(command)

    talk(typed, Listening(script.started() + script.answer("ok")))

    (request,) = [command for command in sent if isinstance(command, Generate)]
    assert request.messages == ({"role": "user", "content": "one\n\ntwo"},)


def test_control_sequences_are_made_visible(script: Script) -> None:
    hostile = script.answer("\x1b]0;owned\x07", "a\r", "\nb")
    _, out, _ = talk("hi\n", script.started() + hostile)

    assert "\x1b" not in out
    assert "␛]0;owned␇" in out
    assert "a\nb" in out


def test_ctrl_c_stops_the_answer_and_the_conversation_goes_on(script: Script) -> None:
    writing = [
        Timed(0.0, script.cycle(0, "half")),
        Timed(script.never, script.done()),
    ]
    recording = script.started() + writing + script.answer("whole", request="b")
    out = Interrupting(after="half")

    code, text, err = talk("one\ntwo\n", recording, stdout=out)

    assert code == 0
    assert text == "> demo:\nhalf\n> demo:\nwhole\n> \n"
    assert "stopping" in err
    assert "· stopped" in err


def test_a_failure_is_told_on_standard_error(script: Script) -> None:
    failing = Failure(
        id="a", code="E-CONTEXT", message="too long", fix=("Shorten it.",)
    )
    code, _, err = talk("hi\n", [*script.started(), Timed(0.0, failing)])

    assert code == 0
    assert "error E-CONTEXT: too long\n  Shorten it.\n" in err


def test_a_dead_engine_is_started_again_by_the_next_message(script: Script) -> None:
    dying = [Timed(0.0, script.cycle(0, "half")), Timed(0.0, EngineDiedError("gone"))]
    code, out, err = talk(
        "one\ntwo\n",
        script.started() + dying,
        script.started() + script.answer("whole"),
    )

    assert code == 0
    assert "half\n" in out
    assert "whole\n" in out
    assert err.count("error E-ENGINE-DIED: gone") == 1


def test_every_death_of_the_engine_is_told(script: Script) -> None:
    dying = [*script.started(), Timed(0.0, EngineDiedError("gone"))]
    _, _, err = talk("one\n/reload\n/retry\n/quit\n", dying, dying, dying)

    assert err.count("error E-ENGINE-DIED: gone") == 2


def test_leaving_after_the_engine_died_has_its_exit_code(script: Script) -> None:
    dying = [Timed(0.0, EngineDiedError("gone"))]
    code, _, err = talk("one\n", script.started() + dying)

    assert code == 9
    assert err.count("error E-ENGINE-DIED: gone") == 1


def test_loading_is_told_in_whole_lines(script: Script) -> None:
    hello, ready = script.started()
    progress = [
        Timed(0.0, LoadProgress(phase="map", done=done, total=10, unit="bytes"))
        for done in range(10)
    ]
    _, _, err = talk("", [hello, *progress, Timed(0.0, ready.event)])

    assert err == "loading weights 0%\n"


def test_a_second_ctrl_c_leaves(script: Script) -> None:
    class Impatient(Interrupting):
        def flush(self) -> None:
            super().flush()
            if self.pressed == 1:
                self.pressed += 1
                signal.raise_signal(signal.SIGINT)

    writing = [
        Timed(0.0, script.cycle(0, "half")),
        Timed(script.never, script.done()),
    ]

    class Deaf(ReplayClient):
        def send(self, command: Command) -> None:
            if not isinstance(command, Cancel):
                super().send(command)

    code, out, _ = talk(
        "one\n", Deaf(script.started() + writing), stdout=Impatient(after="half")
    )

    assert code == 130
    assert out.endswith("half\n")


def test_a_terminal_without_unicode_gets_question_marks(script: Script) -> None:
    raw = io.BytesIO()
    terminal = io.TextIOWrapper(raw, encoding="latin-1")
    run_plain(
        lambda: ReplayClient(script.started() + script.answer("sí, τ")),
        Load(model="m", name="demo"),
        settings=ChatSettings(),
        first_message=None,
        stdin=io.StringIO("hi\n"),
        stdout=terminal,
        stderr=io.StringIO(),
    )

    assert "sí, ?".encode("latin-1") in raw.getvalue()


def test_keys_of_another_character_set_end_nothing(script: Script) -> None:
    out = io.StringIO()
    code = run_plain(
        lambda: ReplayClient(script.started() + script.answer("yes")),
        Load(model="m", name="demo"),
        settings=ChatSettings(),
        first_message=None,
        stdin=io.TextIOWrapper(io.BytesIO(b"caf\xe9?\n"), encoding="utf-8"),
        stdout=out,
        stderr=io.StringIO(),
    )

    assert code == 0
    assert "yes" in out.getvalue()


def test_slash_commands_that_need_no_screen_work_in_lines(script: Script) -> None:
    recording = script.started() + script.answer("one") + script.answer("two")
    typed = (
        "/set temperature 0.5\n/set\n/set temperature hot\n/chats\n/nothing\n"
        "question\n/retry\n/help\n/quit\nnever sent\n"
    )

    code, out, err = talk(typed, recording)

    assert code == 0
    assert out.count("demo:\n") == 2
    assert "temperature: 0.5\n" in err
    assert "it must be a number from 0 to 2" in err
    assert "/chats needs the screen" in err
    assert "there is no command /nothing" in err
    assert "/retry [NAME=VALUE]: ask again" in err


def test_two_slashes_send_one(script: Script) -> None:
    _, out, _ = talk("//etc\n", script.started() + script.answer("a directory"))

    assert "a directory" in out


def test_a_conversation_in_lines_is_saved_and_gone_on_with(
    script: Script, tmp_path: Path
) -> None:
    first = Keeper(tmp_path / "chats.db")
    talk("question\n", script.started() + script.answer("answer"), keeper=first)
    assert first.conversation is not None

    second = Keeper(tmp_path / "chats.db")
    _, _, err = talk(
        "more\n",
        script.started() + script.answer("again"),
        keeper=second,
        resume=first.conversation,
    )

    assert "going on with: question" in err
    assert second.conversation == first.conversation
    third = Keeper(tmp_path / "chats.db")
    saved = third.ask(lambda store: store.read(first.conversation or ""))
    third.close()
    contents = [message.content for message in saved.path()]
    assert contents == ["question", "answer", "more", "again"]
