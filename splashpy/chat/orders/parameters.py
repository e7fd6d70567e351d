# SPDX-License-Identifier: Apache-2.0
"""Orders about how answers are made: system prompt, sampling, effort, drafts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from splashpy.chat.files import path_of, read
from splashpy.chat.orders import looks
from splashpy.chat.parameters import (
    TABLE,
    changed,
    default,
    next_effort,
    shown,
)
from splashpy.chat.screens.parameters import ParametersScreen
from splashpy.chat.settings import ChatSettings
from splashpy.errors import UsageError

if TYPE_CHECKING:
    from splashpy.chat.screens.chat import ChatScreen


def page(screen: ChatScreen, argument: str) -> None:
    """All parameters and the system prompt, to be changed."""
    session = screen.session

    def apply(settings: ChatSettings | None) -> None:
        if settings is not None:
            _apply(screen, settings)

    screen.app.push_screen(
        ParametersScreen(session.settings, session.engine.ready), apply
    )


def change(screen: ChatScreen, argument: str) -> None:
    """Set one parameter, or show all."""
    session = screen.session
    name, _, value = argument.partition(" ")
    if not name:
        page(screen, "")
        return
    settings = changed(session.settings, name, value, session.engine.ready)
    _apply(screen, settings)
    name = name.replace("_", "-")
    present = shown(settings, name) or default(name, session.engine.ready)
    screen.say(f"{name}: {present} ({TABLE[name].help})")


def effort(screen: ChatScreen, argument: str) -> None:
    """Set how long the model thinks, or take the next level."""
    session = screen.session
    if argument in ("", "next"):
        argument = next_effort(session.settings, session.engine.ready)
    change(screen, f"effort {argument}")


def seed(screen: ChatScreen, argument: str) -> None:
    """Fix the seed, or draw a fresh one each time."""
    if not argument:
        raise UsageError("/seed N, or /seed default")
    change(screen, f"seed {argument}")


def draft(screen: ChatScreen, argument: str) -> None:
    """Decode with drafts, or one token at a time; or colour them."""
    if argument in ("color", "colour"):
        looks.colour(screen, "")
        return
    if argument not in ("on", "off"):
        raise UsageError("/draft on, /draft off, or /draft color")
    change(screen, f"draft {argument}")


def system(screen: ChatScreen, argument: str) -> None:
    """Set the system prompt, from text or a file; alone, show the page it is on."""
    if not argument:
        page(screen, "")
        return
    text = argument
    if argument.startswith("@"):
        text = read(path_of(argument[1:])).text
    _apply(screen, replace(screen.session.settings, system=text.strip() or None))


def _apply(screen: ChatScreen, settings: ChatSettings) -> None:
    old = screen.session.settings
    screen.session.settings = settings
    if settings.system != old.system:
        used = screen.session.context_used
        again = f": {used:,} tokens are read again" if used else ""
        screen.say(f"the system prompt holds from the next message{again}")
    screen.sync()
