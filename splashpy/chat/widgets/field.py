# SPDX-License-Identifier: Apache-2.0
"""A line to write in."""

from __future__ import annotations

from typing import Any

from textual.widgets import Input


class Field(Input):
    """An Input whose cursor does not blink: a screen at rest costs nothing."""

    def __init__(self, value: str = "", **options: Any):
        super().__init__(value, **options)
        self.cursor_blink = False
