# SPDX-License-Identifier: Apache-2.0
"""Load a model on an engine and wait until it is ready."""

from __future__ import annotations

from collections.abc import Callable

from splashpy.client.client import EngineClient
from splashpy.errors import error_from
from splashpy.protocol import Failure, Load, LoadProgress, Ready


def load_model(
    client: EngineClient, load: Load, progress: Callable[[LoadProgress], None]
) -> Ready:
    """Load a model; facts of it.

    Args:
        client: connected to the engine, from which nobody else receives meanwhile.
        load: the model.
        progress: called while it is loaded.

    Raises:
        SplashError: loading failed.
    """
    client.send(load)
    while True:
        event = client.receive()
        if isinstance(event, LoadProgress):
            progress(event)
        elif isinstance(event, Failure):
            raise error_from(event)
        elif isinstance(event, Ready):
            return event
