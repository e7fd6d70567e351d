# SPDX-License-Identifier: Apache-2.0
"""A screen over the conversation."""

from __future__ import annotations

from typing import Generic

from textual.screen import ModalScreen, ScreenResultType


class OverScreen(ModalScreen[ScreenResultType], Generic[ScreenResultType]):
    """Ctrl+c copies what is selected on it, and closes it where nothing is."""

    def action_copy_text(self) -> None:
        """What ctrl+c calls."""
        if self.get_selected_text():
            super().action_copy_text()
        else:
            self.dismiss(None)
