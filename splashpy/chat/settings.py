# SPDX-License-Identifier: Apache-2.0
"""What a person chose for one chat."""

from __future__ import annotations

from dataclasses import dataclass, field

from splashpy.protocol import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """Wishes of a person, the same for every message of the session.

    Attributes:
        sampling: how tokens are chosen; None fields mean the package's defaults.
        max_tokens: answer tokens at most; None: what the context leaves.
        system: the system prompt.
        title: the window's title; empty uses the model's name.
        inline: draw below the shell's prompt instead of on the whole screen.
        mouse: let the chat have the mouse; False leaves it to the terminal.
        theme: name of a colour theme; None uses the default one.
        remote: the terminal is on another machine (ssh), so what is copied must
            travel through the terminal.
    """

    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    system: str | None = None
    title: str = ""
    inline: bool = False
    mouse: bool = True
    theme: str | None = None
    remote: bool = False
