# SPDX-License-Identifier: Apache-2.0
"""The conversation screen: draws a session, and turns keys into what a person wants.

It holds no state of the conversation. ``sync`` makes everything on it agree with the
session and runs after every change. What the engine says is drawn in batches, as often
as ``frames.py`` says.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static, TextArea

from splashpy.chat.bindings import bindings
from splashpy.chat.commands import message_of, parse
from splashpy.chat.conversation import Conversation
from splashpy.chat.entries import Attachment, Reply, UserMessage
from splashpy.chat.frames import Frames
from splashpy.chat.keys import rebound
from splashpy.chat.messages import (
    Completed,
    EndPressed,
    EngineSpoke,
    PasteRefused,
    PromptSubmitted,
    QuitPressed,
)
from splashpy.chat.orders.context import ask_what_to_send
from splashpy.chat.orders.table import ORDERS
from splashpy.chat.screens.telling import TellingScreen
from splashpy.chat.screens.writing import Writing
from splashpy.chat.sizes import TINY_HEIGHT, TINY_WIDTH
from splashpy.chat.store import Draft
from splashpy.chat.widgets.header import HeaderBar
from splashpy.chat.widgets.hints import AttachedFiles, HintFooter, QueuedMessage
from splashpy.chat.widgets.popup import CompletionPopup
from splashpy.chat.widgets.prompt import PromptEditor
from splashpy.chat.widgets.speed import SpeedPanel
from splashpy.chat.widgets.status import StatusLine, status
from splashpy.chat.widgets.transcript import Transcript
from splashpy.errors import UsageError
from splashpy.units import format_bytes

_QUIT_SECONDS = 1.0
_TWICE_SECONDS = 0.4
_WELCOME = (
    "Type a message and press enter. You can type while the model loads.\n"
    "ctrl+j starts a new line, f1 shows all keys."
)


class ChatScreen(TellingScreen):
    """The one screen of the chat.

    Args:
        conversation: what is drawn, and what keys act on.
        first_message: is sent as soon as the engine is ready.
        draft: what was written before and not sent.
    """

    # Before the editor's own keys: these mean the same wherever the cursor is.
    BINDINGS: ClassVar[list[BindingType]] = bindings("anywhere")
    AUTO_FOCUS = "PromptEditor"

    def __init__(
        self,
        conversation: Conversation,
        *,
        first_message: str | None = None,
        draft: Draft | None = None,
    ):
        super().__init__()
        self._draft = draft
        self.conversation = conversation
        self.session = conversation.session
        self._first_message = first_message
        self._flush_timer: Timer | None = None
        self._ticker: Timer | None = None
        self._tick_seconds = 0.0
        self._frames = Frames(remote=conversation.session.settings.remote)
        self._quit_timer: Timer | None = None
        self._stepped_at = float("-inf")
        self.shown_link = ""

    def compose(self) -> ComposeResult:
        """Header, conversation, status, editor, keys."""
        yield HeaderBar()
        with Horizontal(id="body"):
            with Container(id="stage"):
                yield Transcript(_WELCOME, emoji=self.session.settings.emoji)
                yield Static(id="pill")
                yield CompletionPopup()
            yield SpeedPanel()
        yield StatusLine()
        # Textual asks what is in a container for its lines only if that part changed.
        with Vertical(id="desk"):
            yield QueuedMessage()
            yield AttachedFiles()
            keys = rebound(self.session.settings.keys)
            yield PromptEditor(enter_sends="enter" in keys["send"].split(","))
            yield HintFooter()
        yield Static("window too small", id="tiny")

    def on_mount(self) -> None:
        """Find the widgets once, start the engine, draw."""
        self._header = self.query_one(HeaderBar)
        self.transcript = self.query_one(Transcript)
        self._status = self.query_one(StatusLine)
        self.panel = self.query_one(SpeedPanel)
        self._popup = self.query_one(CompletionPopup)
        self.prompt = self.query_one(PromptEditor)
        self.writing = Writing(
            self.conversation,
            self.prompt,
            popup=self._popup,
            queued=self.query_one(QueuedMessage),
            attached=self.query_one(AttachedFiles),
        )
        self._footer = self.query_one(HintFooter)
        self._pill = self.query_one("#pill", Static)
        self.watch(self.transcript, "new_rows", self._show_pill)
        self.writing.remember(self.say)
        if self.session.settings.server:
            self.say(f"talking with the server at {self.session.settings.server}")
        if self._draft is not None:
            self.writing.take_up(self._draft)
        if self._first_message:
            self.conversation.submit(self._first_message)
        self.conversation.start(lambda: self.post_message(EngineSpoke()))
        self.sync()

    @on(TextArea.Changed)
    def _draft_changed(self) -> None:
        self.writing.changed()

    @on(Completed)
    def _completed(self, message: Completed) -> None:
        """A file that was chosen by ``@`` is attached; its name stays in the text."""
        if message.choice.insert.startswith("@"):
            name = message.choice.text
            self.attempt(lambda: self.writing.attach(Path(name), name))

    def on_unmount(self) -> None:
        """Whatever stands in the editor is kept for the next time."""
        self.writing.keep()

    # --- drawing ------------------------------------------------------------------

    def sync(self) -> None:
        """Draw what the session says."""
        session = self.session
        self._header.show(session)
        self.transcript.sync(session.entries, self.conversation.now())
        self.writing.sync()
        self._sync_status()
        self.writing.restore(self.say)
        if session.too_long is not None:
            problem, session.too_long = session.too_long, None
            self.call_later(ask_what_to_send, self, problem)
        self._keep_time(self._frames.silence if session.busy else 0.0)

    def _keep_time(self, seconds: float) -> None:
        """Look at the clock so often from now on; 0: never."""
        if seconds == self._tick_seconds:
            return
        self._tick_seconds = seconds
        if self._ticker is not None:
            self._ticker.stop()
        self._ticker = self.set_interval(seconds, self._tick) if seconds else None

    def _tick(self) -> None:
        """Time goes on while the engine says nothing."""
        if self._frames.tick(time.perf_counter()):
            self._sync_status()

    def _sync_status(self) -> None:
        self.conversation.keep()
        now, width = self.conversation.now(), self.size.width
        self._status.show(status(self.session, now, width=width))
        self.panel.show(self.session, now)

    def _show_pill(self, rows: int) -> None:
        self._pill.display = rows > 0
        self._pill.update(Content(f" ↓ {rows} new {'row' if rows == 1 else 'rows'} "))

    def on_resize(self, event: events.Resize) -> None:
        """A terminal may be too small to show anything."""
        tiny = event.size.width < TINY_WIDTH or event.size.height < TINY_HEIGHT
        self.set_class(tiny, "-tiny")
        self._sync_status()

    @on(EngineSpoke)
    def _schedule_flush(self) -> None:
        wait = self._frames.wait(time.perf_counter())
        if wait <= 0:
            self._flush()
        elif self._flush_timer is None:
            self._flush_timer = self.set_timer(wait, self._flush)

    def _flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.stop()
            self._flush_timer = None
        self._frames.shared = self.session.engine.shared
        self._frames.unseen = not self.app.app_focus
        self._frames.begin(time.perf_counter(), time.thread_time())
        if self.conversation.take_in():
            self.sync()

    # --- what a person does -------------------------------------------------------

    @on(PromptSubmitted)
    def _submit(self) -> None:
        self.app.clear_notifications()
        try:
            command = parse(self.prompt.text)
        except UsageError as error:
            self.refuse(error)
            return
        prompt = self.prompt
        if command is None:
            message = prompt.expanded(message_of(prompt.text))
            if self.send(message, prompt.attachments):
                self.writing.clear()
                self.sync()
        else:
            name, argument = command[0], prompt.expanded(command[1])
            text = prompt.take()
            if not self._order(name, argument) and not prompt.text:
                prompt.put(text)

    def send(self, text: str, files: Sequence[Attachment] = ()) -> bool:
        """Send a message, or let it wait; says so when neither is possible."""
        if not self.conversation.submit(text, files):
            editing = self.conversation.editing is not None
            waiting = "one message is already waiting; esc takes it back"
            self.say(self.session.hindrance if editing else waiting)
            return False
        self.transcript.action_follow()
        self.sync()
        return True

    def action_order(self, name: str, argument: str = "") -> None:
        """Do what a slash command or a key says."""
        self._order(name, argument)

    def _order(self, name: str, argument: str) -> bool:
        """Do it; False when it could not be done, which is told."""
        return self.attempt(lambda: ORDERS[name](self, argument))

    def action_step_back(self) -> None:
        """Leave editing, else stop, else take back the queued message."""
        self.app.clear_notifications()
        if self._popup.display:
            self._popup.show(())
        elif self.focused is self.transcript:
            self.leave_conversation()
        elif self.conversation.editing is not None:
            self.writing.leave_edit()
        elif not self.conversation.stop():
            self._step_back_idle()
        self.prompt.focus()
        self.clear_selection()
        self.sync()

    def _step_back_idle(self) -> None:
        """Take back what waits; twice in an empty editor, edit what was sent last."""
        now = self.conversation.now()
        twice, self._stepped_at = now - self._stepped_at < _TWICE_SECONDS, now
        if self.session.queued is not None:
            self.writing.take_back_queued()
        elif twice and self.session.can_retry and not self.prompt.text:
            self._order("edit", "")

    def leave_conversation(self) -> None:
        """The editor has the keys again."""
        self.transcript.select(None)
        self.prompt.focus()
        self.sync()

    def action_choose(self, step: int) -> None:
        """Choose another message of the conversation."""
        self.transcript.focus()
        self.transcript.choose(step)

    def show_panel(self, *, shown: bool) -> None:
        """Show or hide the speed panel; a narrow terminal has room for one."""
        self.panel.display = shown
        self.set_class(shown, "-panel")
        self.sync()

    def begin_edit(self, message: UserMessage) -> None:
        """Put a message back into the editor, to be sent in other words."""
        self.writing.begin_edit(message)
        self.leave_conversation()

    def retry(self, reply: Reply | None) -> None:
        """Ask again for an answer, the last one when it is None.

        Raises:
            UsageError: that is not possible now.
        """
        if not self.conversation.retry(reply):
            raise UsageError(self.session.hindrance or "nothing was asked yet")
        if self.prompt.message == self.session.question:
            self.writing.clear()  # it was put back when it failed
        self.transcript.action_follow()
        self.leave_conversation()

    def action_interrupt(self) -> None:
        """Copy a selection, else stop, else clear the editor, else ask to quit."""
        selected = self.prompt.selected_text or self.get_selected_text()
        if selected:
            self.app.copy_to_clipboard(selected)
            self.prompt.move_cursor(self.prompt.cursor_location)
            self.clear_selection()
        elif self.conversation.stop():
            self.sync()
        elif self.prompt.text:
            self.prompt.take()
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

    def action_restart_or_search(self) -> None:
        """Start the engine again, when it is gone; else search earlier prompts."""
        if not self.restart_engine():
            self._order("prompts", "")

    def restart_engine(self) -> bool:
        """Start an engine that is gone or does not answer; whether that was so."""
        if not self.conversation.restartable:
            return False
        self.conversation.restart()
        self.sync()
        return True

    @on(EndPressed)
    def _end_pressed(self) -> None:
        self.transcript.action_follow()

    def action_page(self, direction: int) -> None:
        """Scroll by a page: the panel where it hides the conversation."""
        if self.panel.display and not self.has_class("-wide"):
            self.panel.page(direction)
        else:
            self.transcript.page(direction)

    def action_top(self) -> None:
        """Scroll to the beginning."""
        self.transcript.action_top()

    def action_end(self) -> None:
        """Scroll to the end and follow it."""
        self.transcript.action_follow()

    @on(PasteRefused)
    def _paste_refused(self, message: PasteRefused) -> None:
        self.say(
            f"a paste of {format_bytes(message.size)} is too large, 1 MB is the most"
        )

    @on(events.Click, "#pill")
    def _pill_clicked(self) -> None:
        self.transcript.action_follow()

    @on(events.Click, "StatusLine")
    def _status_clicked(self) -> None:
        self.restart_engine()

    def on_key(self, event: events.Key) -> None:
        """What is typed beside the editor belongs into it."""
        beside = self.focused is not self.prompt
        if beside and event.is_printable and event.key not in self.active_bindings:
            event.stop()
            self.prompt.focus()
            self.prompt.insert(event.character or "")

    def on_paste(self, event: events.Paste) -> None:
        """So does what is pasted."""
        if self.focused is not self.prompt:
            self.prompt.focus()
            self.prompt.post_message(events.Paste(event.text))
