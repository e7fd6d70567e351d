# SPDX-License-Identifier: Apache-2.0
"""Draft by looking the text up in itself.

Where the latest n tokens occurred before, what followed them then is proposed now.
It costs no model and wins wherever text is repeated: code edits, quotations, tables.
The longest n wins, then the most recent place. A match that reaches far back promises
a long copy, so it may propose more tokens.

A lookup can only lose time, never change the text: the target verifies every token.
Whether it pays is measured for nothing: every match, drafted from or not, is compared
with the tokens that really follow. Matches of a length are drafted from while they
would commit more tokens per cycle than a cycle costs in plain steps. One or two tokens
say little, so they count as a match only where they occurred exactly once before.
Beside a drafter a match has to commit more than the drafter would in the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx

from splashpy.drafting.drafter import DraftSampling, Proposal, empty_proposal

DRAFT_TOKENS = 6  # a match of ordinary depth
LONG_MATCH = 8  # tokens of agreement before a longer copy is expected
MAX_ROWS = 32  # rows of one verify pass, the anchor included
_LENGTHS = (5, 4, 3, 2, 1)
_AMBIGUOUS = 2  # n-grams up to this length count only while they are unique
LOOKUP_PAYS_BELOW = 3.0  # plain steps a cycle may cost
_PRIOR = LOOKUP_PAYS_BELOW  # tokens a match commits, before anything is known
PROBE_EVERY = 8  # long copies between two tries while they are parked
_MEMORY = 0.1  # weight of the newest match in the running yield


@dataclass(slots=True)
class Yield:
    """Tokens a cycle would commit by drafting from matches of one length."""

    mean: float = _PRIOR
    matches: int = 1

    def note(self, committed: int) -> None:
        """Count one match; early ones weigh as much as the prior."""
        self.matches += 1
        self.mean += max(_MEMORY, 1 / self.matches) * (committed - self.mean)


@dataclass(frozen=True, slots=True)
class Match:
    """The latest n tokens occurred before and ended at ``end`` then."""

    n: int
    end: int


@dataclass(slots=True)
class LookupState:
    """One sequence: its tokens, where n-grams ended, and how matches turn out.

    Attributes:
        tokens: everything committed so far, the anchor last.
        places: n-gram -> (ends of its two latest occurrences, newest first, and
            how often it occurred).
        open: matches whose following tokens are not all known, with the length of
            the text when they were found.
        yields: by n.
        price: tokens a usual proposal must commit to beat what else could be done;
            set by whoever has something else to do.
        answering: the prompt is over; tokens from here on judge matches.
        drafted: tokens of the running proposal.
        poor_long: long proposals in a row of which less than half was kept.
        held_back: long proposals not made since the last one that was.
    """

    tokens: list[int] = field(default_factory=list)
    places: dict[tuple[int, ...], tuple[int, int, int]] = field(default_factory=dict)
    open: list[tuple[Match, int]] = field(default_factory=list)
    yields: dict[int, Yield] = field(
        default_factory=lambda: {n: Yield() for n in _LENGTHS}
    )
    price: float = 1.0
    answering: bool = False
    drafted: int = 0
    poor_long: int = 0
    held_back: int = 0


class LookupDrafter:
    """Proposes the continuation of an earlier occurrence of the latest tokens.

    Args:
        cost: time of a verify pass of a usual proposal in plain steps; matches of a
            length that commits fewer tokens are not drafted from.
        block_size: rows of one verify pass at most, the anchor included.
    """

    feature_layers: tuple[int, ...] = ()

    def __init__(self, *, cost: float = 1.0, block_size: int = MAX_ROWS):
        self.block_size = block_size
        self.cost = cost

    @property
    def always(self) -> bool:
        """Whether it drafts from every match, since that costs nothing or is wished."""
        return self.cost <= 1.0

    def new_state(self) -> LookupState:
        """Nothing seen yet."""
        return LookupState()

    def idle(self, state: LookupState) -> bool:
        """Whether no match is worth a draft; one that drafts always is never idle."""
        return not self.always and self._promising(state) is None

    def expected(self, state: LookupState) -> list[float]:
        """Tokens a cycle would commit with 0, 1, 2 ... drafts."""
        state.price = 1.0
        match = self._find(state)
        if match is None:
            return [1.0]
        more = state.yields[match.n].mean - 1.0
        steps = range(DRAFT_TOKENS + 1)
        return [1.0 + more * count / DRAFT_TOKENS for count in steps]

    def propose_shared(
        self, state: LookupState, anchor: mx.array, limit: int, sampling: DraftSampling
    ) -> Proposal:
        """Of the latest match, whatever it is expected to give."""
        return self._propose(state, limit, sampling, self._find(state))

    def observe(
        self,
        state: LookupState,
        token_ids: Sequence[int],
        features: mx.array | None,
        start: int,
    ) -> None:
        """Index newly committed tokens; those of an answer also judge matches.

        The prompt is indexed only: how a person repeats words says nothing about how
        the target does.
        """
        _judge_length(state, len(token_ids))
        for token in token_ids:
            state.tokens.append(token)
            self._index(state)
            if state.answering:
                _judge(state)
                match = self._find(state)
                if match is not None:
                    state.open.append((match, len(state.tokens)))

    def propose(
        self, state: LookupState, anchor: mx.array, limit: int, sampling: DraftSampling
    ) -> Proposal:
        """What followed the latest tokens the last time they occurred.

        Where a grammar leaves no choice, what it demands.
        """
        return self._propose(state, limit, sampling, self._promising(state))

    def _propose(
        self,
        state: LookupState,
        limit: int,
        sampling: DraftSampling,
        match: Match | None,
    ) -> Proposal:
        state.answering, state.drafted = True, 0
        room = min(limit, self.block_size - 1)
        if sampling.grammar is not None:
            forced = sampling.grammar.forced()[:room]
            if forced:
                return self._proposal(forced)
        if match is None or room < 1:
            return empty_proposal()
        depth = _depth(state.tokens, match.end)
        count = min(room, _length(state, depth))
        period = len(state.tokens) - match.end  # a text that loops is copied on and on
        drafts = [state.tokens[match.end + i % period] for i in range(count)]
        if sampling.grammar is not None:
            drafts = drafts[: sampling.grammar.legal(drafts)]
        state.drafted = len(drafts)
        return self._proposal(drafts)

    def _proposal(self, token_ids: list[int]) -> Proposal:
        drafts = mx.array(token_ids, dtype=mx.int32)
        return Proposal(drafts, source="l", cost=self.cost if token_ids else 1.0)

    def _promising(self, state: LookupState) -> Match | None:
        """The match of the latest tokens, if drafting from it is expected to pay."""
        match = self._find(state)
        if match is None or state.yields[match.n].mean < max(self.cost, state.price):
            return None
        return match

    def _index(self, state: LookupState) -> None:
        end = len(state.tokens)
        for n in _LENGTHS:
            if end >= n:
                gram = tuple(state.tokens[end - n :])
                latest, _, count = state.places.get(gram, (0, 0, 0))
                state.places[gram] = (end, latest, count + 1)

    def _find(self, state: LookupState) -> Match | None:
        for n in _LENGTHS:
            found = state.places.get(tuple(state.tokens[-n:]))
            if found is None:
                continue
            _, earlier, count = found
            if earlier and (n > _AMBIGUOUS or count == 2):
                return Match(n, earlier)
        return None


def _judge(state: LookupState) -> None:
    """Settle the open matches that the newest token refutes or completes."""
    now, newest = len(state.tokens), state.tokens[-1]
    still_open = []
    for match, found_at in state.open:
        ahead = now - found_at - 1  # drafts confirmed before this token
        period = found_at - match.end
        agrees = state.tokens[match.end + ahead % period] == newest
        if agrees and ahead + 1 < DRAFT_TOKENS:
            still_open.append((match, found_at))
        else:
            state.yields[match.n].note(ahead + 1 + agrees)
    state.open = still_open


def _length(state: LookupState, depth: int) -> int:
    """How many tokens a match promises; long copies that disappointed are parked."""
    if depth < LONG_MATCH:
        return DRAFT_TOKENS
    if state.poor_long >= 2:
        state.held_back = (state.held_back + 1) % PROBE_EVERY
        if state.held_back:
            return DRAFT_TOKENS
    return 2 * depth


def _judge_length(state: LookupState, committed: int) -> None:
    if state.drafted > DRAFT_TOKENS:
        poor = 2 * (committed - 1) < state.drafted
        state.poor_long = state.poor_long + 1 if poor else 0
    state.drafted = 0


def _depth(tokens: list[int], end: int) -> int:
    """How many tokens before ``end`` equal the latest ones, going backwards."""
    depth = 0
    limit = min(end, MAX_ROWS)
    while depth < limit and tokens[end - 1 - depth] == tokens[-1 - depth]:
        depth += 1
    return depth
