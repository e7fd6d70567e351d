# SPDX-License-Identifier: Apache-2.0
"""The chat application: what a terminal runs, and the way in for the command line.

Read on in ``session.py`` (the state), ``conversation.py`` (state and engine) and
``screens/chat.py`` (what is drawn and what keys do).
"""

from __future__ import annotations

import asyncio
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from textual.app import App
from textual.driver import Driver
from textual.filter import LineFilter
from textual.notifications import SeverityLevel

from splashpy.chat.charset import CharsetFilter
from splashpy.chat.clipboard import (
    MOST_TERMINAL_BYTES,
    copy_with_program,
    encoded,
    programs,
    write_file,
)
from splashpy.chat.conversation import Conversation, Machine
from splashpy.chat.guardian import Guardian
from splashpy.chat.keeper import Keeper
from splashpy.chat.screens.chat import ChatScreen
from splashpy.chat.settings import ChatSettings
from splashpy.chat.sizes import NARROW, TALL, WIDE
from splashpy.chat.store import Draft
from splashpy.chat.terminal_input import InlineDriver, ScreenDriver
from splashpy.chat.theme import DARK
from splashpy.chat.themes import use_theme
from splashpy.client.client import EngineClient
from splashpy.errors import EngineDiedError, InternalError
from splashpy.protocol import Load
from splashpy.sanitize import sanitize_line
from splashpy.units import format_bytes

MOST_NOTIFICATIONS = 3  # more would hide the conversation
_UNTIL_DISMISSED_SECONDS = 86_400.0
_SIGNAL_BASE = 128  # a shell's exit code for a program that ended by a signal


class ChatApp(App[bool]):
    """Wraps a conversation in a terminal application.

    Its result is None when the person leaves; else the screen is to be shown again,
    and have the mouse or not.

    Args:
        conversation: what it is about.
        settings: theme, title and clipboard.
        first_message: is sent as soon as the engine is ready.
        draft: what was written before and not sent.
    """

    CSS_PATH = "splashpy.tcss"
    NOTIFICATION_TIMEOUT = 8.0
    # Classes of every screen, for the style sheet; as Textual declares them.
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-middle"), (WIDE, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (TALL, "-tall")]  # noqa: RUF012

    def __init__(
        self,
        conversation: Conversation,
        settings: ChatSettings,
        *,
        first_message: str | None = None,
        draft: Draft | None = None,
    ):
        super().__init__()
        self.conversation = conversation
        self.crash: Exception | None = None
        self._copied = ""
        self._settings = settings
        self._first_message = first_message
        self._draft = draft
        self._charset = CharsetFilter(settings.encoding)
        if not settings.motion:
            self.animation_level = "none"
        use_theme(self, settings.theme or DARK.name, settings.themes)
        self.set_keymap(dict(settings.keys))
        self.title = sanitize_line(settings.title or conversation.session.model_name)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own, then what leaves only characters the terminal has."""
        filters = super().get_line_filters()
        return filters if self._settings.unicode else [*filters, self._charset]

    def _build_driver(
        self,
        headless: bool,  # noqa: FBT001 - Textual's own signature
        inline: bool,  # noqa: FBT001
        mouse: bool,  # noqa: FBT001
        size: tuple[int, int] | None,
    ) -> Driver:
        if headless:
            return super()._build_driver(headless, inline, mouse, size)
        reading = InlineDriver if inline else ScreenDriver
        driver = self._driver = reading(self, mouse=mouse, size=size)
        driver.encoding = self._settings.encoding
        return driver

    def on_mount(self) -> None:
        """Show the conversation; leave in order when told to from outside."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            loop.add_signal_handler(number, self._leave, _SIGNAL_BASE + number)
        if not self.is_headless:
            threading.Thread(
                target=self._watch_terminal, name="terminal", daemon=True
            ).start()
        self.push_screen(
            ChatScreen(
                self.conversation,
                first_message=self._first_message,
                draft=self._draft,
            )
        )

    def _watch_terminal(self) -> None:
        """Leave when the terminal is gone without a signal: nobody could any more.

        A thread that sleeps until then costs nothing; a timer would wake the chat.
        """
        assert sys.__stdin__ is not None  # or there would be no screen
        poll = select.poll()
        poll.register(sys.__stdin__, 0)
        if any(state & select.POLLHUP for _, state in poll.poll()):
            self.call_from_thread(self._leave, _SIGNAL_BASE + signal.SIGHUP)

    def _leave(self, return_code: int) -> None:
        self.exit(return_code=return_code)

    def copy_to_clipboard(self, text: str) -> None:
        """Copy by the first way that reaches the person's clipboard; say which."""
        self._copied = text
        settings = self._settings
        candidates = programs(display=settings.display, tmux=settings.tmux)
        if candidates:
            self.run_worker(partial(self._copy, text, candidates), thread=True)
        else:
            self._copy_to_terminal(text)

    @property
    def clipboard(self) -> str:
        """What was copied last in this application."""
        return self._copied

    def _copy(self, text: str, candidates: Sequence[Sequence[str]]) -> None:
        """In a thread: programs may take their time."""
        program = copy_with_program(text, candidates)
        if program is None:
            self.call_from_thread(self._copy_to_terminal, text)
        else:
            size = format_bytes(len(encoded(text)))
            self.call_from_thread(self._say, f"copied {size} ({program})")

    def _copy_to_terminal(self, text: str) -> None:
        data = encoded(text)
        size = format_bytes(len(data))
        if len(data) <= MOST_TERMINAL_BYTES:
            super().copy_to_clipboard(data.decode("utf-8"))
            self._say(f"sent {size} to the terminal (OSC 52)")
            return
        try:
            self._say(f"too long for the terminal, {size} saved to {write_file(text)}")
        except OSError as error:
            self._say(f"{size} cannot be copied: {error.strerror}")

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Show a sentence: for some seconds, an error until it is dismissed."""
        if severity == "error" and timeout is None:
            timeout = _UNTIL_DISMISSED_SECONDS
        super().notify(
            message, title=title, severity=severity, timeout=timeout, markup=markup
        )

    def on_notify(self) -> None:
        """Another sentence is about to be shown: the oldest gives way."""
        while len(self._notifications) >= MOST_NOTIFICATIONS:
            self._unnotify(next(iter(self._notifications)), refresh=False)

    def _say(self, text: str) -> None:
        self.notify(text, markup=False)

    def _fatal_error(self) -> None:
        # Textual would print a traceback here; the caller gets the error instead and
        # prints what a person can use.
        self.crash = self._exception
        self._close_messages_no_wait()


def run_chat(  # noqa: PLR0913 - what a chat consists of
    connect: Callable[[], EngineClient],
    load: Load,
    *,
    settings: ChatSettings,
    first_message: str | None = None,
    keeper: Keeper | None = None,
    resume: str | None = None,
    machine: Machine | None = None,
) -> int:
    """Talk with a model in the terminal until the person leaves.

    Args:
        connect: returns a started client; the first call the one that already starts,
            later ones a new engine each.
        load: the model.
        settings: of the session.
        first_message: is sent as soon as the model is ready.
        keeper: saves everything; None saves nothing. It is closed at the end.
        resume: id of a saved conversation to go on with.
        machine: what the chat may ask about this machine.

    Returns:
        The exit code: 0, 9 when the engine died and was not started again, or 128 and
        the number of the signal that ended the chat.

    Raises:
        UsageError: no theme has the name in ``settings``, or its file is unusable.
        NotFoundError: there is no conversation ``resume``.
        InternalError: a bug in the chat; the terminal is restored.
    """
    conversation = Conversation(
        connect,
        load,
        settings,
        clock=time.perf_counter,
        time_of_day=lambda: time.strftime("%H:%M"),
        keeper=keeper,
    )
    conversation.machine = machine or conversation.machine
    try:
        draft = conversation.open(resume) if resume else conversation.unsent()
        app = ChatApp(conversation, settings, first_message=first_message, draft=draft)
        with Guardian(inline=settings.inline):
            mouse = _show(app, settings, mouse=settings.mouse)
            while mouse is not None:
                settings = replace(settings, theme=app.theme)
                app = ChatApp(conversation, settings)
                mouse = _show(app, settings, mouse=mouse)
    finally:
        conversation.close()
    if app.crash is not None:
        raise InternalError(f"the chat failed: {app.crash!r}") from app.crash
    if app.return_code:
        return app.return_code
    gone = conversation.session.engine.phase in ("dead", "stuck")
    return EngineDiedError.exit_code if gone else 0


def _show(app: ChatApp, settings: ChatSettings, *, mouse: bool) -> bool | None:
    """Run the screen; what it returns, None when the person leaves or it fails."""
    inline = settings.inline
    return app.run(inline=inline, inline_no_clear=True, mouse=mouse)
