# SPDX-License-Identifier: Apache-2.0
"""What the loop asks of anything that guesses the next tokens.

Shapes: K drafted tokens, C candidates per position, F feature layers, D hidden size
of the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, runtime_checkable

import mlx.core as mx

from splashpy.models.dflash2_context import DrafterContext

Source = Literal["a", "l"]
"""How a drafted token is shown once accepted: by the drafter, by lookup."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The tokens a drafter guesses after the anchor.

    Attributes:
        token_ids: [K] int32, possibly unevaluated; K may be 0.
        source: what kind of drafter made it.
        candidates: [K, C] int32 ids the draft was drawn from; None when it is a point
            mass on ``token_ids``.
        probs: [K, C] float32, the distribution over ``candidates`` that token i really
            was drawn from given tokens 1..i-1; None when it is a point mass.
        cost: of its cycle in plain steps, as far as its drafter knows.
    """

    token_ids: mx.array
    source: Source = "a"
    candidates: mx.array | None = None
    probs: mx.array | None = None
    cost: float = 1.0

    def __len__(self) -> int:
        return self.token_ids.shape[0]


def empty_proposal() -> Proposal:
    """A proposal of no tokens: the cycle becomes a plain step."""
    return Proposal(mx.zeros((0,), dtype=mx.int32))


class Rules(Protocol):
    """What may follow the committed tokens; see ``verification/grammar.py``."""

    def fork(self) -> Self:
        """An independent copy."""
        ...

    def consume(self, token_ids: Sequence[int]) -> int:
        """Go on by these tokens."""
        ...

    def legal(self, token_ids: Sequence[int]) -> int:
        """How many of them may follow, one after the other."""
        ...

    def forced(self) -> list[int]:
        """Tokens that must follow."""
        ...

    def allows(self, token_ids: Sequence[int]) -> list[bool]:
        """Which of them may come next."""
        ...


@dataclass(frozen=True, slots=True)
class DraftSampling:
    """How a drafter that draws its tokens draws them.

    Attributes:
        temperature: 0 drafts greedily.
        seed: base of every random key of the request.
        position: absolute position of the first drafted token.
        cycle: number of the cycle, so that a position drafted again after a
            rejection gets fresh noise.
        coupled: draw with the noise the target uses for the same position (seeded
            requests), so that both pick the same token where they agree.
        grammar: what the text must follow; a draft outside it is never kept.
    """

    temperature: float = 0.0
    seed: int = 0
    position: int = 0
    cycle: int = 0
    coupled: bool = False
    grammar: Rules | None = None


class Drafter(Protocol):
    """Guesses tokens; never decides what is emitted.

    ``block_size`` - 1 is the largest proposal.
    ``feature_layers`` are the target layers whose output ``observe`` gets, in order;
    empty when it needs none.
    """

    block_size: int
    feature_layers: tuple[int, ...]

    def new_state(self) -> Any:
        """Memory of one request, before any token."""
        ...

    def idle(self, state: Any) -> bool:
        """Whether ``propose`` would propose nothing, as far as tokens are known.

        The loop then launches a plain step before it has read the one in flight, so a
        chance that only the token in flight opens is taken one step later.
        """
        ...

    def observe(
        self,
        state: Any,
        token_ids: Sequence[int],
        features: mx.array | None,
        start: int,
    ) -> None:
        """Take note of newly committed tokens and newly cached rows.

        Args:
            state: from ``new_state``.
            token_ids: committed tokens since the last call, in order: the prompt
                first, then each cycle's run.
            features: [n, F * D] rows of positions cached since the last call, or None
                when the drafter asks for no feature layers. Rows trail the tokens by
                one: the last committed token is the anchor and is not cached yet.
            start: absolute position of the first row of ``features``. A prompt whose
                beginning was restored brings rows for its end only, so the first call
                may start above 0.
        """
        ...

    def propose(
        self, state: Any, anchor: mx.array, limit: int, sampling: DraftSampling
    ) -> Proposal:
        """At most ``limit`` tokens to follow ``anchor``.

        Leaves no uncommitted row behind: calling it twice gives the same answer.

        Args:
            state: from ``new_state``.
            anchor: [] int32, the last committed token, possibly unevaluated.
            limit: how many drafts are useful, from the token budget.
            sampling: how to draw, for drafters that draw.
        """
        ...


@runtime_checkable
class SharesCycles(Protocol):
    """A drafter whose cycles may be those of several texts.

    How much to draft is decided for all of them; how long such a cycle takes says
    nothing about one text.
    """

    def expected(self, state: Any) -> list[float]:
        """Tokens a cycle would commit with 0, 1, 2 ... drafts."""
        ...

    def propose_shared(
        self, state: Any, anchor: mx.array, limit: int, sampling: DraftSampling
    ) -> Proposal:
        """``limit`` tokens to follow ``anchor``, or those lookup finds."""
        ...


@runtime_checkable
class KeepsContext(Protocol):
    """A drafter whose context a later request may take up.

    A request that begins without it is drafted for all the same, less well at first.
    """

    def new_context(self) -> DrafterContext | None:
        """A context of no rows; None where there is nothing to keep."""
        ...

    def keep(self, state: Any) -> DrafterContext | None:
        """The context of the committed rows; it goes on changing with the state."""
        ...

    def take_up(self, state: Any, context: DrafterContext) -> None:
        """Begin a new state with a context, which then belongs to it."""
        ...
