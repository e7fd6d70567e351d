# SPDX-License-Identifier: Apache-2.0
"""Orders about the engine: another model, the same anew, unload, a race."""

from __future__ import annotations

from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING

from splashpy.chat.fit import Offer, explained, verdict
from splashpy.chat.screens.picker import PickerScreen, Row
from splashpy.errors import ModelMissingError, ModelUnknownError, UsageError

if TYPE_CHECKING:
    from splashpy.chat.screens.chat import ChatScreen


def choose(screen: ChatScreen, argument: str) -> None:
    """Load another model: the one named, else one from a list."""
    if argument:
        _switch(screen, _named(screen.conversation.machine.offers(), argument))
        return
    screen.later(screen.conversation.machine.offers, partial(_show, screen))


def _show(screen: ChatScreen, offers: list[Offer]) -> None:
    by_name = {offer.name: offer for offer in offers}

    def rows(query: str) -> list[Row]:
        wanted = query.lower()
        return [_row(screen, offer) for offer in offers if wanted in offer.name.lower()]

    def chosen(name: str | None) -> None:
        if name is not None:
            screen.attempt(lambda: _ask(screen, by_name[name]))

    screen.app.push_screen(
        PickerScreen("models", rows, empty="no model has this in its name"), chosen
    )


def _row(screen: ChatScreen, offer: Offer) -> Row:
    session = screen.session
    device = session.engine.device
    judged = verdict(offer, device, screen.conversation.machine.free_memory())
    present = "▸ " if offer.path == session.load.model else "  "
    used = f"   {offer.last_used}" if offer.last_used else ""
    return Row(
        offer.name,
        f"{judged.mark} {present}{offer.name}",
        f"{judged.text}{used}",
        explained(offer, device),
    )


def _ask(screen: ChatScreen, offer: Offer) -> None:
    """Load it; where it does not fit, only after a second look."""
    judged = verdict(offer, screen.session.engine.device, None)
    if judged.mark != "✗":
        _switch(screen, offer)
        return
    rows = [
        Row("no", "keep the present model", detail=judged.text),
        Row("yes", f"load {offer.name} anyway", detail=explained(offer, None)),
    ]

    def decided(key: str | None) -> None:
        if key == "yes":
            screen.attempt(lambda: _switch(screen, offer))

    screen.app.push_screen(
        PickerScreen("it does not fit", lambda _: rows, empty=""), decided
    )


def _switch(screen: ChatScreen, offer: Offer) -> None:
    if not offer.path:
        raise ModelMissingError(
            f"{offer.name} is not on this machine", fix=[f"splashpy pull {offer.name}"]
        )
    screen.conversation.change_model(offer)
    screen.sync()


def _named(offers: list[Offer], name: str) -> Offer:
    found = next((offer for offer in offers if offer.name == name), None)
    if found is None:
        near = get_close_matches(name, [offer.name for offer in offers], cutoff=0.3)
        raise ModelUnknownError(
            f"no model is called {name!r}", why=f"nearest: {', '.join(near)}"
        )
    return found


def again(screen: ChatScreen, argument: str) -> None:
    """End the engine and start it again."""
    screen.conversation.restart()
    screen.sync()


def unload(screen: ChatScreen, argument: str) -> None:
    """Free the model; the next message loads it again."""
    if not screen.conversation.unload():
        raise UsageError(screen.session.hindrance)
    screen.sync()


def race(screen: ChatScreen, argument: str) -> None:
    """Answer a message, the last one by default, with drafts and without."""
    ready = screen.session.engine.ready
    if ready is not None and ready.draft.state == "off":
        raise UsageError("there are no drafts to race", why=ready.draft.reason)
    if not screen.conversation.race(argument):
        first = "send a message first; /race answers it again, twice"
        raise UsageError(screen.session.hindrance or first)
    screen.transcript.action_follow()
    screen.sync()
