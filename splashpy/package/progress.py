# SPDX-License-Identifier: Apache-2.0
"""How long work on files reports back, and how it is asked to stop.

Downloads, checks and builds take a ``progress`` callback and poll ``cancelled``
between chunks. Both are called on the working thread.
"""

from __future__ import annotations

from collections.abc import Callable

from splashpy.protocol import LoadProgress

Progress = Callable[[LoadProgress], None]
"""Called with every step; must return quickly."""

Cancelled = Callable[[], bool]
"""True once the caller wants the work to end."""


class CancelledError(Exception):
    """``cancelled`` said yes.

    Nothing half-finished is left under a final name; what arrived whole is kept, so
    the same call later does not fetch it again.
    """


def silent(_: LoadProgress) -> None:
    """A ``progress`` for callers who show nothing."""


def never() -> bool:
    """A ``cancelled`` for callers who never stop."""
    return False
