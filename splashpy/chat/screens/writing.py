# SPDX-License-Identifier: Apache-2.0
"""What is being written: drafts that are kept, files, and texts that come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from textual.timer import Timer

from splashpy.chat.commands import parse_quietly
from splashpy.chat.completions import Completions
from splashpy.chat.conversation import Conversation
from splashpy.chat.entries import Attachment, UserMessage
from splashpy.chat.files import read
from splashpy.chat.store import Draft
from splashpy.chat.widgets.hints import AttachedFiles, QueuedMessage
from splashpy.chat.widgets.popup import CompletionPopup
from splashpy.chat.widgets.prompt import PromptEditor
from splashpy.errors import SplashError

_DRAFT_SECONDS = 0.5
_EDITING = "another wording; esc leaves it"


class Writing:
    """The editor and what stands around it, joined to a conversation.

    Args:
        conversation: gets drafts, and gives back what could not be sent.
        prompt: the editor.
        popup: shows what could be meant.
        queued: shows the message that waits.
        attached: shows the files that go with the next one.
    """

    def __init__(
        self,
        conversation: Conversation,
        prompt: PromptEditor,
        *,
        popup: CompletionPopup,
        queued: QueuedMessage,
        attached: AttachedFiles,
    ):
        self._conversation = conversation
        self._session = conversation.session
        self._prompt = prompt
        self._popup = popup
        self._queued = queued
        self._attached = attached
        self._completions = Completions(self._files_listed)
        self._timer: Timer | None = None
        self._idle = False
        self._waiting: str | None = None
        prompt.popup = popup

    def remember(self, say: Callable[[str], None]) -> None:
        """Earlier prompts come back; new ones, and drafts, are kept.

        Args:
            say: shows what the keeper has to tell.
        """
        keeper = self._conversation.keeper
        if keeper is None:
            return
        keeper.listen(lambda text: self._prompt.app.call_later(say, text))
        self._prompt.keep_prompt = keeper.note_prompt
        with suppress(SplashError):  # the keeper told why it has none
            for prompt in keeper.ask(lambda store: store.prompts()):
                self._prompt.remember_earlier(prompt)

    def changed(self) -> None:
        """Something was typed: offer what it could become, and keep it soon."""
        self._keep_soon()
        choices = self._completions.choices(self._prompt.text, self._prompt.word)
        self._popup.show(choices)

    def _keep_soon(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._prompt.set_timer(_DRAFT_SECONDS, self._keep_and_count)

    def _files_listed(self) -> None:
        """The list of files is there now; called from its thread."""
        self._prompt.app.call_from_thread(self.changed)

    def _keep_and_count(self) -> None:
        self._timer = None
        self.keep()
        if parse_quietly(self._prompt.text) is None:
            prompt = self._prompt
            self._conversation.count(prompt.message, prompt.attachments)

    def keep(self) -> None:
        """Whatever stands in the editor is kept for the next time."""
        prompt = self._prompt
        self._conversation.keep_draft(prompt.message, prompt.attachments)

    def attach(self, path: Path, name: str = "") -> None:
        """Send a file with the next message.

        Raises:
            InputFileError: it cannot be sent.
        """
        self._add_files([read(path, name)])
        self.sync()

    def _add_files(self, files: Sequence[Attachment]) -> None:
        """Another file of the same name is replaced."""
        names = [file.name for file in files]
        kept = [file for file in self._prompt.attachments if file.name not in names]
        self._prompt.attachments = [*kept, *files]

    def sync(self) -> None:
        """Show what waits, what goes with the next message, and what that replaces."""
        self._queued.show(self._session.queued)
        was_idle, self._idle = self._idle, self._session.idle
        countable = self._idle and not was_idle and bool(self._prompt.text)
        if self._attached.show(self._prompt.attachments) or countable:
            self._keep_soon()
        if self._session.queued != self._waiting:
            self._waiting = self._session.queued
            self.keep()  # or what was sent since would come back after a crash
        title = _EDITING if self._conversation.editing else ""
        if self._prompt.border_title != title:  # setting it draws the editor again
            self._prompt.border_title = title

    def restore(self, say: Callable[[str], None]) -> None:
        """Put back a message that failed, where nothing else is being written."""
        returned = self._session.take_returned()
        if returned is not None and not self._put_back(returned):
            say("the message that failed is in the history: arrow up")

    def take_up(self, draft: Draft) -> None:
        """Put into the editor what was written before and not sent."""
        if draft.unsent:
            self._prompt.put(draft.unsent)
        self._add_files(draft.files)

    def take_back_queued(self) -> None:
        """The message that waits is not to be sent."""
        message = self._session.drop_queued()
        if message is not None:
            self._put_back(message)

    def _put_back(self, message: UserMessage) -> bool:
        """Into the editor, or where it is taken into the history."""
        if self._prompt.text:
            self._prompt.remember(message.text)
            return False
        self._prompt.put(message.text)
        self._add_files(message.attachments)
        self._attached.show(self._prompt.attachments)
        return True

    def begin_edit(self, message: UserMessage) -> None:
        """Put a message back into the editor, to be sent in other words."""
        if self._prompt.text.strip():
            self._prompt.remember(self._prompt.message)
        self._conversation.editing = message
        self._prompt.put(message.text)
        self._prompt.attachments = list(message.attachments)

    def leave_edit(self) -> None:
        """The next message is a new one."""
        self._conversation.editing = None
        self.clear()

    def clear(self) -> None:
        """Nothing is being written any more."""
        self._prompt.take()
        self._prompt.attachments = []
