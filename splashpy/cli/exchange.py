# SPDX-License-Identifier: Apache-2.0
"""A model loaded and a request followed, through any engine client."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from splashpy.cli.signals import Interrupts
from splashpy.client.client import EngineClient
from splashpy.errors import error_from
from splashpy.protocol import (
    Cancel,
    Done,
    Event,
    Failure,
    Generate,
    Hello,
    Load,
    LoadProgress,
    Ready,
)

POLL_SECONDS = 0.2  # how soon a Ctrl-C is passed on while the engine says nothing


def load(
    client: EngineClient,
    command: Load,
    show: Callable[[Event], None],
    interrupts: Interrupts,
) -> Ready:
    """Load a model and wait until it is ready.

    Args:
        client: a client that has not been spoken to.
        command: what to load.
        show: called with every event until then, ``Ready`` included.
        interrupts: a request to stop ends the wait.

    Raises:
        SplashError: the engine could not load it.
        KeyboardInterrupt: somebody asked to stop.
    """
    client.send(Hello())
    client.send(command)
    while True:
        interrupts.check()
        event = client.receive(POLL_SECONDS)
        if event is None:
            continue
        show(event)
        if isinstance(event, Failure):
            raise error_from(event)
        if isinstance(event, Ready):
            return event


def follow(
    client: EngineClient, command: Generate, interrupts: Interrupts
) -> Iterator[Event]:
    """Send a request and yield its events, the ``Done`` last.

    After a request to stop, the engine is asked to cancel and its ``Done`` still comes.

    Raises:
        SplashError: the request failed.
    """
    client.send(command)
    asked = False
    while True:
        if interrupts.requested and not asked:
            client.send(Cancel(id=command.id))
            asked = True
        event = client.receive(POLL_SECONDS)
        if event is None or isinstance(event, LoadProgress):
            continue
        yield event
        if isinstance(event, Failure) and (event.fatal or event.id == command.id):
            raise error_from(event)
        if isinstance(event, Done) and event.id == command.id:
            return
