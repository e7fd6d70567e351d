# SPDX-License-Identifier: Apache-2.0
"""The conversation screen: draws a session, and turns keys into what a person wants.

It holds no state of the conversation. ``sync`` makes everything on it agree with the
session and runs after every change. What the engine says is drawn in batches: the more
a frame costs, the fewer there are, so drawing never takes more than a third of a core.
"""

from __future__ import annotations

import time
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Static

from splashpy.chat.conversation import Conversation
from splashpy.chat.entries import Reply
from splashpy.chat.messages import (
    EngineSpoke,
    PasteRefused,
    PromptSubmitted,
    QuitPressed,
)
from splashpy.chat.screens.help import HelpScreen
from splashpy.chat.widgets.header import HeaderBar
from splashpy.chat.widgets.hints import HintFooter, QueuedMessage
from splashpy.chat.widgets.prompt import PromptEditor
from splashpy.chat.widgets.status import StatusLine, status
from splashpy.chat.widgets.transcript import Transcript
from splashpy.units import format_bytes

_QUIT_SECONDS = 1.0
_TICK_SECONDS = 0.25
_SHORTEST_FRAME_SECONDS = 0.033
_LONGEST_FRAME_SECONDS = 0.25
_FRAME_SHARE = 3.0  # a frame is followed by at least twice its own time of rest
_NARROW = 60
_SHORT = 16
_WELCOME = (
    "Type a message and press enter. You can type while the model loads.\n"
    "ctrl+j starts a new line, f1 shows all keys."
)


class ChatScreen(Screen[None]):
    """The one screen of the chat.

    Args:
        conversation: what is drawn, and what keys act on.
        first_message: is sent as soon as the engine is ready.
    """

    # Before the editor's own keys: these mean the same wherever the cursor is.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "step_back", "stop", show=False, priority=True),
        Binding("ctrl+c", "interrupt", "stop or quit", show=False, priority=True),
        Binding("ctrl+n", "new_conversation", "new", show=False, priority=True),
        Binding("ctrl+y", "copy_answer", "copy", show=False, priority=True),
        Binding("alt+r", "retry", "retry", show=False, priority=True),
        Binding("ctrl+r", "restart_engine", "restart", show=False, priority=True),
        Binding("f1", "help", "keys", show=False, priority=True),
        Binding("pageup", "page(-1)", "up", show=False, priority=True),
        Binding("pagedown", "page(1)", "down", show=False, priority=True),
        Binding("ctrl+home", "top", "top", show=False, priority=True),
        Binding("ctrl+end", "end", "end", show=False, priority=True),
        Binding("ctrl+z", "app.suspend_process", "shell", show=False, priority=True),
    ]
    AUTO_FOCUS = "PromptEditor"

    def __init__(self, conversation: Conversation, *, first_message: str | None = None):
        super().__init__()
        self._conversation = conversation
        self._session = conversation.session
        self._first_message = first_message
        self._flush_timer: Timer | None = None
        self._flushed_at = 0.0
        self._frame_seconds = _SHORTEST_FRAME_SECONDS
        self._quit_timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """Header, conversation, status, editor, keys."""
        yield HeaderBar()
        with Container(id="stage"):
            yield Transcript(_WELCOME)
            yield Static(id="pill")
        yield StatusLine()
        yield QueuedMessage()
        yield PromptEditor()
        yield HintFooter()

    def on_mount(self) -> None:
        """Find the widgets once, start the engine, draw."""
        self._header = self.query_one(HeaderBar)
        self._transcript = self.query_one(Transcript)
        self._status = self.query_one(StatusLine)
        self._queued = self.query_one(QueuedMessage)
        self._prompt = self.query_one(PromptEditor)
        self._footer = self.query_one(HintFooter)
        self._pill = self.query_one("#pill", Static)
        self._ticker = self.set_interval(_TICK_SECONDS, self._sync_status, pause=True)
        self.watch(self._transcript, "new_rows", self._show_pill)
        if self._first_message:
            self._conversation.submit(self._first_message)
        self._conversation.start(lambda: self.post_message(EngineSpoke()))
        self.sync()

    # --- drawing ------------------------------------------------------------------

    def sync(self) -> None:
        """Draw what the session says."""
        session = self._session
        self._header.show(session)
        self._transcript.sync(session.entries, self._conversation.now())
        self._queued.show(session.queued)
        self._sync_status()
        self._restore_prompt()
        if session.busy:
            self._ticker.resume()
        else:
            self._ticker.pause()

    def _sync_status(self) -> None:
        now, width = self._conversation.now(), self.size.width
        self._status.show(status(self._session, now, width=width))

    def _restore_prompt(self) -> None:
        returned = self._session.take_returned()
        if returned is None:
            return
        if self._prompt.text:
            self._prompt.remember(returned)
            self._say("the message that failed is in the history: arrow up")
        else:
            self._prompt.put(returned)

    def _show_pill(self, rows: int) -> None:
        self._pill.display = rows > 0
        self._pill.update(Content(f" ↓ {rows} new {'row' if rows == 1 else 'rows'} "))

    def on_resize(self, event: events.Resize) -> None:
        """A small terminal shows less around the conversation."""
        self.set_class(event.size.width < _NARROW, "-narrow")
        self.set_class(event.size.height < _SHORT, "-short")
        self._sync_status()

    @on(EngineSpoke)
    def _schedule_flush(self) -> None:
        wait = self._flushed_at + self._frame_seconds - time.perf_counter()
        if wait <= 0:
            self._flush()
        elif self._flush_timer is None:
            self._flush_timer = self.set_timer(wait, self._flush)

    def _flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.stop()
            self._flush_timer = None
        self._flushed_at = time.perf_counter()
        if self._conversation.take_in():
            self.sync()
            self.call_after_refresh(self._measure_frame)

    def _measure_frame(self) -> None:
        cost = time.perf_counter() - self._flushed_at
        wanted = max(_FRAME_SHARE * cost, _SHORTEST_FRAME_SECONDS)
        self._frame_seconds = min(wanted, _LONGEST_FRAME_SECONDS)

    # --- what a person does -------------------------------------------------------

    @on(PromptSubmitted)
    def _submit(self) -> None:
        if not self._conversation.submit(self._prompt.text):
            self._say("one message is already waiting; esc takes it back")
            return
        self._prompt.take()
        self._transcript.action_follow()
        self.sync()

    def action_step_back(self) -> None:
        """Stop the answer, else take back the queued message, else go to the editor."""
        if not self._conversation.stop() and self._session.queued is not None:
            self._take_back_queued()
        self._prompt.focus()
        self.clear_selection()
        self.sync()

    def _take_back_queued(self) -> None:
        text = self._session.drop_queued()
        if text is None:
            return
        if self._prompt.text:
            self._prompt.remember(text)
        else:
            self._prompt.put(text)

    def action_interrupt(self) -> None:
        """Copy a selection, else stop, else clear the editor, else ask to quit."""
        selected = self._prompt.selected_text or self.get_selected_text()
        if selected:
            self.app.copy_to_clipboard(selected)
            self._prompt.move_cursor(self._prompt.cursor_location)
            self.clear_selection()
        elif self._conversation.stop():
            self.sync()
        elif self._prompt.text:
            self._prompt.take()
        else:
            self._ask_to_quit("ctrl+c")

    @on(QuitPressed)
    def _quit_pressed(self) -> None:
        self._ask_to_quit("ctrl+d")

    def _ask_to_quit(self, key: str) -> None:
        if self._quit_timer is not None:
            self.app.exit()
            return
        self._footer.say(f"press {key} again to quit")
        self._quit_timer = self.set_timer(_QUIT_SECONDS, self._stay)

    def _stay(self) -> None:
        self._quit_timer = None
        self._footer.say("")

    def action_new_conversation(self) -> None:
        """Leave this conversation and begin another."""
        self._conversation.begin_anew()
        self.sync()

    def action_copy_answer(self) -> None:
        """Copy the source text of the last answer."""
        replies = [e for e in self._session.entries if isinstance(e, Reply) and e.text]
        if replies:
            self.app.copy_to_clipboard(replies[-1].text)
        else:
            self._say("there is no answer to copy yet")

    def action_retry(self) -> None:
        """Ask again for the last answer."""
        if self._conversation.retry():
            if self._prompt.text == self._session.question:
                self._prompt.take()  # it was put back when it failed
            self._transcript.action_follow()
            self.sync()

    def action_restart_engine(self) -> None:
        """Start the engine again, when it is gone or does not answer."""
        if self._conversation.restartable:
            self._conversation.restart()
            self.sync()

    def action_help(self) -> None:
        """Show all keys."""
        self.app.push_screen(HelpScreen())

    def action_page(self, direction: int) -> None:
        """Scroll the conversation by a page."""
        self._transcript.page(direction)

    def action_top(self) -> None:
        """Scroll to the beginning."""
        self._transcript.action_top()

    def action_end(self) -> None:
        """Scroll to the end and follow it."""
        self._transcript.action_follow()

    @on(PasteRefused)
    def _paste_refused(self, message: PasteRefused) -> None:
        self._say(
            f"a paste of {format_bytes(message.size)} is too large, 1 MB is the most"
        )

    @on(events.Click, "#pill")
    def _pill_clicked(self) -> None:
        self._transcript.action_follow()

    @on(events.Click, "StatusLine")
    def _status_clicked(self) -> None:
        self.action_restart_engine()

    def on_key(self, event: events.Key) -> None:
        """What is typed beside the editor belongs into it."""
        beside = self.focused is not self._prompt
        if beside and event.is_printable and event.key not in self.active_bindings:
            event.stop()
            self._prompt.focus()
            self._prompt.insert(event.character or "")

    def on_paste(self, event: events.Paste) -> None:
        """So does what is pasted."""
        if self.focused is not self._prompt:
            self._prompt.focus()
            self._prompt.post_message(events.Paste(event.text))

    def _say(self, text: str) -> None:
        self.notify(text, markup=False)
