# SPDX-License-Identifier: Apache-2.0
"""The longest stored beginning of a prompt.

One run is kept: the state of the latest request with the tokens its rows belong to.
The next turn of a conversation begins with exactly those tokens, takes the state over
without a copy and computes only what is new. Token ids decide, nothing else.

A state with windows or recurrent layers cannot be cut anywhere: it goes back to the
nearest row it can come to exactly, or the prompt is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from splashpy.models.state import TargetState

MIN_REUSE = 16  # tokens: below this a fresh state costs as little


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """A state that already holds the first ``length`` tokens of a prompt."""

    length: int
    state: TargetState


class PrefixCache:
    """Holds the state of the latest finished request."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._state: TargetState | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens of state held."""
        return len(self._tokens)

    def take(self, token_ids: Sequence[int]) -> PrefixHit | None:
        """Hand the stored state over, shortened to what it shares with a prompt.

        It is shortened further where the state cannot end exactly there. At least one
        prompt token is left to compute: a state holds no logits. After a hit the cache
        is empty until the next :meth:`insert`.
        """
        state, self._state = self._state, None
        shared = _shared_length(self._tokens, token_ids[:-1])
        self._tokens = []
        length = 0 if state is None else state.nearest(shared)
        if state is None or length < MIN_REUSE:
            return None
        state.roll_back(length)
        return PrefixHit(length, state)

    def insert(self, token_ids: Sequence[int], state: TargetState) -> None:
        """Keep ``state``, whose rows belong to exactly ``token_ids``.

        Raises:
            ValueError: the state holds another number of rows.
        """
        if state.length != len(token_ids):
            raise ValueError(
                f"{len(token_ids)} tokens do not describe {state.length} rows"
            )
        self._tokens, self._state = list(token_ids), state


def _shared_length(stored: Sequence[int], wanted: Sequence[int]) -> int:
    length = 0
    for ours, theirs in zip(stored, wanted, strict=False):
        if ours != theirs:
            break
        length += 1
    return length
