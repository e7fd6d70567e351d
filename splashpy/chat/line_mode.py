# SPDX-License-Identifier: Apache-2.0
"""The chat as plain lines: for dumb terminals and screen readers.

Nothing moves the cursor. ``> `` asks, answers stream, Ctrl-C stops an answer, Ctrl-D
leaves. A line that ends in a backslash goes on; three double quotes alone on a line
begin and end a message of several lines.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TextIO

from splashpy.chat import meters
from splashpy.chat.commands import message_of, parse
from splashpy.chat.entries import Attachment, Notice, Problem, Reply
from splashpy.chat.keeper import Keeper
from splashpy.chat.line_orders import LINE_COMMANDS, LINE_ORDERS
from splashpy.chat.session import Session
from splashpy.chat.settings import ChatSettings
from splashpy.client.client import EngineClient
from splashpy.errors import EngineDiedError, SplashError, UsageError
from splashpy.protocol import Command, Cycle, Hello, Load, LoadProgress, Prefill
from splashpy.sanitize import sanitize

_POLL_SECONDS = 0.2  # how long Ctrl-C may go unnoticed
_PROGRESS_SECONDS = 5.0
_FENCE = '"""'
_INTERRUPTED = 130


def run_plain(  # noqa: PLR0913 - a chat and its three streams
    connect: Callable[[], EngineClient],
    load: Load,
    *,
    settings: ChatSettings,
    first_message: str | None,
    keeper: Keeper | None = None,
    resume: str | None = None,
    stdin: TextIO,
    stdout: TextIO,
    stderr: TextIO,
) -> int:
    """Talk with a model line by line until the input ends.

    Args:
        connect: returns a started client; called again after the engine died.
        load: the model.
        settings: of the session.
        first_message: is sent before the first question.
        keeper: saves everything; None saves nothing. It is closed at the end.
        resume: id of a saved conversation to go on with.
        stdin: where messages come from.
        stdout: where answers go.
        stderr: where everything else goes.

    Returns:
        The exit code: 0, 9 when the engine died and was not started again, or 130
        after an interruption that was to end everything.
    """
    if isinstance(stdin, io.TextIOWrapper):
        stdin.reconfigure(errors="replace")  # keys of another character set
    lines = LineChat(connect, load, settings, stdout, stderr)
    lines.keeper = keeper
    try:
        if resume is not None:
            lines.go_on(resume)
        lines.start()
        if first_message:
            _put(stdout, f"> {first_message}\n")
            lines.answer(first_message)
        while (text := _read_message(stdin, stdout)) is not None:
            if text.strip() and not lines.take(text):
                break
        stdout.write("\n")
    except KeyboardInterrupt:
        stdout.write("\n")
        return _INTERRUPTED
    finally:
        lines.close()
        if keeper is not None:
            keeper.listen(lambda text: _put(stderr, f"{text}\n"))
            keeper.close()
    return lines.exit_code


def _read_message(stdin: TextIO, stdout: TextIO) -> str | None:
    """One message; None at the end of the input. Ctrl-C drops the line."""
    parts: list[str] = []
    fenced = False
    while True:
        stdout.write("... " if parts or fenced else "> ")
        stdout.flush()
        try:
            line = stdin.readline()
        except KeyboardInterrupt:
            stdout.write("\n")
            parts, fenced = [], False
            continue
        if not line:
            return "\n".join(parts) if parts else None
        line = line.rstrip("\r\n")
        if line.strip() == _FENCE:
            if fenced:
                return "\n".join(parts)
            fenced = True
        elif fenced or line.endswith("\\"):
            parts.append(line if fenced else line[:-1])
        else:
            return "\n".join([*parts, line])


class LineChat:
    """A conversation whose answers are printed as they come.

    Args:
        connect: returns a started client.
        load: the model.
        settings: of the session.
        stdout: where answers go.
        stderr: where everything else goes.

    Attributes:
        session: its state.
        files: what is sent with the next message.
        keeper: saves everything; None saves nothing.
    """

    def __init__(
        self,
        connect: Callable[[], EngineClient],
        load: Load,
        settings: ChatSettings,
        stdout: TextIO,
        stderr: TextIO,
    ):
        self.session = Session(load, settings, time_of_day=lambda: "")
        self.keeper: Keeper | None = None
        self.files: list[Attachment] = []
        self._connect = connect
        self._client: EngineClient | None = None
        self._stdout = stdout
        self._stderr = stderr
        self._told: list[Notice] = []
        self._told_at = 0.0
        self._told_work = ""

    @property
    def exit_code(self) -> int:
        """9 when the engine died and was not started again."""
        gone = self.session.engine.phase == "dead"
        return EngineDiedError.exit_code if gone else 0

    def start(self) -> None:
        """Connect and load; a failure is told, not raised."""
        self.session.restart()
        try:
            self._client = self._connect()
            self._client.send(Hello())
            self._client.send(self.session.load)
            while self.session.engine.phase in ("starting", "loading"):
                self._take_event()
        except SplashError as error:
            self.session.lost(error)
        self._tell_problem()

    def go_on(self, name: str) -> None:
        """Go on with a saved conversation."""
        assert self.keeper is not None  # nothing could be resumed without one
        saved, tree, _ = self.keeper.open(name)
        settings = self.session.settings.with_parameters(saved.parameters)
        self.session.settings = replace(settings, system=saved.system)
        self.session.open(tree)
        self.tell(f"going on with: {saved.title}")

    def take(self, text: str) -> bool:
        """Do what a line says: a command, or a message; False to leave."""
        try:
            command = parse(text)
            if command is None:
                self.answer(message_of(text))
                return True
            name, argument = command
            if name == "quit":
                return False
            self._obey(name, argument)
        except SplashError as error:
            self._tell_about(Problem.of(error))
        return True

    def _obey(self, name: str, argument: str) -> None:
        orders = LINE_ORDERS.get(name)
        if orders is None:
            raise UsageError(
                f"/{name} needs the screen", why="here: /" + ", /".join(LINE_COMMANDS)
            )
        orders(self, argument)

    def answer(self, text: str) -> None:
        """Send a message and print its answer as it comes."""
        if self.session.engine.phase in ("dead", "failed", "unloaded"):
            self.begin_again()
        if not self.session.idle:
            return
        files, self.files = self.files, []
        self.run(self.session.submit(text, time.perf_counter(), files))

    def begin_again(self) -> None:
        """End what is left of the engine and start another."""
        self.tell("starting the engine again")
        self.close()
        self.start()

    def run(self, commands: Sequence[Command]) -> None:
        """Send commands and print the answer they ask for."""
        reply = self.session.reply
        if reply is None:
            return
        _put(self._stdout, f"{reply.name}:\n")
        try:
            self._send(commands)
            self._print_while_running(reply)
        except SplashError as error:
            self.session.lost(error)
        self._keep()
        self._finish(reply)

    def _keep(self) -> None:
        if self.keeper is not None:
            self.keeper.note(self.session, time.perf_counter())

    def close(self) -> None:
        """End the engine."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _print_while_running(self, reply: Reply) -> None:
        printed = 0
        while self.session.reply is reply:
            try:
                self._take_event()
                # A held-back "\r" may be the first half of a line end.
                ready = reply.text[printed:].removesuffix("\r")
                printed += len(ready)
                _put(self._stdout, ready)
            except KeyboardInterrupt:
                self._interrupt()

    def _interrupt(self) -> None:
        commands = self.session.stop(time.perf_counter())
        if not commands:
            raise KeyboardInterrupt  # the second time: leave
        self.tell("stopping; press ctrl-c again to leave")
        self._send(commands)

    def _finish(self, reply: Reply) -> None:
        if not reply.text.endswith("\n"):
            _put(self._stdout, "\n")
        if reply.done is not None:
            self.tell(meters.summary(reply.done))
        known = [notice.problem for notice in self._notices()]
        if reply.problem is not None and reply.problem not in known:
            self._tell_about(reply.problem)
        self._tell_problem()

    def _take_event(self) -> None:
        if self._client is None:
            return
        try:
            event = self._client.receive(_POLL_SECONDS)
        except EOFError:
            raise EngineDiedError("the engine ended") from None
        if event is None:
            return
        self._send(self.session.apply(event, time.perf_counter()))
        self._keep()
        match event:
            case LoadProgress():
                work = meters.LOAD_PHASES[event.phase]
                self._tell_progress(work, event.done, event.total)
            case Prefill():
                self._tell_progress("reading prompt", event.processed, event.total)
            case Cycle() if any(piece.channel == "r" for piece in event.pieces):
                self._tell_progress("thinking", 0, 0)
            case _:
                pass

    def _send(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if self._client is not None:
                self._client.send(command)

    def _tell_progress(self, work: str, done: int, total: int) -> None:
        now = time.perf_counter()
        if work == self._told_work and now - self._told_at < _PROGRESS_SECONDS:
            return
        self._told_at, self._told_work = now, work
        self.tell(f"{work} {done / total:.0%}" if total else work)

    def _tell_problem(self) -> None:
        for notice in self._notices():
            if notice not in self._told:
                self._told.append(notice)
                self._tell_about(notice.problem)

    def _notices(self) -> list[Notice]:
        entries = self.session.entries
        return [entry for entry in entries if isinstance(entry, Notice)]

    def _tell_about(self, problem: Problem) -> None:
        self.tell(f"error {problem.code}: {problem.message}")
        if problem.why:
            self.tell(problem.why)
        for step in problem.fix:
            self.tell(f"  {step}")

    def tell(self, text: str) -> None:
        """Say something that is no part of an answer."""
        _put(self._stderr, f"{text}\n")


def _put(stream: TextIO, text: str) -> None:
    """Write untrusted text; what the stream cannot encode becomes a question mark."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(sanitize(text).encode(encoding, "replace").decode(encoding))
    stream.flush()
