# SPDX-License-Identifier: Apache-2.0
"""The two colour themes of the chat.

Text keeps a contrast of at least 4.5 to 1 against the background it stands on.
"""

from __future__ import annotations

from textual.theme import Theme

FAINT = "$foreground 70%"
"""For text that explains other text."""

DARK = Theme(
    name="splash-dark",
    primary="#5EB1EF",
    secondary="#B18CF0",
    accent="#5FD3BC",
    foreground="#D9DEE7",
    background="#0F1319",
    surface="#171D26",
    panel="#202835",
    success="#7FD88F",
    warning="#E7B65C",
    error="#F07178",
    dark=True,
)

LIGHT = Theme(
    name="splash-light",
    primary="#0B62B8",
    secondary="#6E3FBF",
    accent="#00705E",
    foreground="#1D2430",
    background="#FAFBFC",
    surface="#EEF1F5",
    panel="#E1E6ED",
    success="#1B7A34",
    warning="#8A5A00",
    error="#B3261E",
    dark=False,
)
