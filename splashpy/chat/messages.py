# SPDX-License-Identifier: Apache-2.0
"""What the parts of the chat tell each other."""

from __future__ import annotations

from textual.message import Message

from splashpy.chat.widgets.popup import Choice


class PromptSubmitted(Message):
    """A person sent what stands in the editor."""


class PasteRefused(Message):
    """A paste of ``size`` characters is too large for the editor."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size


class Completed(Message):
    """A choice was put in place of what was typed."""

    def __init__(self, choice: Choice) -> None:
        super().__init__()
        self.choice = choice


class QuitPressed(Message):
    """Ctrl+D in an empty editor."""


class EndPressed(Message):
    """The end key in an empty editor."""


class EngineSpoke(Message):
    """Something waits at the engine link; sent once per batch."""
