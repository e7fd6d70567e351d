# SPDX-License-Identifier: Apache-2.0
"""What came of looking a prompt up, as far as it can be told by token ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tier = Literal["ram", "disk", ""]

Reason = Literal["empty", "short", "departs", "lost", "unsaved", "whole"]
"""Why no more was restored.

``empty``: nothing is stored for this model.
``short``: too few tokens are shared to be worth it.
``departs``: the prompt is another one from there on.
``lost``: more is shared, but what was kept there had to make room.
``unsaved``: more is shared, but this model can be resumed only where it was kept.
``whole``: all of the prompt that can be restored was.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """One prompt, looked up.

    Attributes:
        length: tokens of the prompt.
        shared: tokens it shares with the stored sequence that shares most.
        resumed: tokens restored.
        tier: from where.
        reason: why not more.
        was: tokens of the stored sequence where the prompt departs from it.
        junction: where to keep a checkpoint, so that the next such prompt is resumed
            there; 0 where none is needed.
        damaged: records on disk that could not be used, and are deleted.
    """

    length: int
    shared: int = 0
    resumed: int = 0
    tier: Tier = ""
    reason: Reason = "empty"
    was: tuple[int, ...] = ()
    junction: int = 0
    damaged: int = 0
