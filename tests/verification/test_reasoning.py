# SPDX-License-Identifier: Apache-2.0
"""Limited reasoning, against a direct reading of its rule."""

from __future__ import annotations

import mlx.core as mx
from hypothesis import given
from hypothesis import strategies as st

from splashpy.verification.reasoning import LimitedReasoning, ReasoningLimit

VOCAB = 6
OPEN, CLOSE, BRIDGE = 1, 2, 3
tokens = st.lists(st.integers(0, VOCAB - 1), max_size=14)
limits = st.builds(
    ReasoningLimit,
    tokens=st.integers(0, 4),
    closing=st.sampled_from([(CLOSE,), (BRIDGE, CLOSE), (BRIDGE, BRIDGE, CLOSE)]),
    opener=st.sampled_from([None, OPEN]),
    inside=st.booleans(),
)


def demanded(limit: ReasoningLimit, text: list[int]) -> int | None:
    """The only token that may follow a text, by reading it from its beginning."""
    inside, used, over = limit.inside, 0, False
    pending = list(limit.closing) if inside and not limit.tokens else []
    for token in text:
        if pending:
            assert token == pending.pop(0)
            if not pending:
                inside, over = False, True
            continue
        if inside:
            inside = token != CLOSE
            used += inside
        else:
            inside = token == limit.opener and not over
        if inside and used == limit.tokens:
            pending = list(limit.closing)
    return pending[0] if pending else None


def allowed(rules: LimitedReasoning, drafts: list[int]) -> list[list[int]]:
    rows = rules.apply(mx.zeros((len(drafts) + 1, VOCAB)), drafts)
    return [[t for t, v in enumerate(row) if v == 0] for row in rows.tolist()]


def written(limit: ReasoningLimit, wishes: list[int]) -> list[int]:
    """A text whose writer takes what is demanded and else what it wishes."""
    text: list[int] = []
    for wish in wishes:
        demand = demanded(limit, text)
        text.append(wish if demand is None else demand)
    return text


@given(limit=limits, wishes=tokens, cut=st.integers(0, 14))
def test_every_row_of_a_pass_may_choose_what_its_own_prefix_allows(
    limit: ReasoningLimit, wishes: list[int], cut: int
) -> None:
    text = written(limit, wishes)
    known, drafts = text[:cut], text[cut:]
    rules = LimitedReasoning(limit)
    assert rules.consume(known) == len(known)

    rows = allowed(rules, drafts)

    for row, choices in enumerate(rows):
        demand = demanded(limit, known + drafts[:row])
        assert choices == (list(range(VOCAB)) if demand is None else [demand])
    assert rules.legal(drafts) == len(drafts)
    assert rules.allows(range(VOCAB)) == [t in rows[0] for t in range(VOCAB)]
    assert rules.forced()[:1] == ([rows[0][0]] if len(rows[0]) == 1 else [])


@given(limit=limits, wishes=tokens, drafts=tokens)
def test_rows_said_to_be_free_are_free_whatever_is_drafted(
    limit: ReasoningLimit, wishes: list[int], drafts: list[int]
) -> None:
    rules = LimitedReasoning(limit)
    rules.consume(written(limit, wishes))

    if rules.free(len(drafts) + 1):
        assert allowed(rules, drafts) == [list(range(VOCAB))] * (len(drafts) + 1)


@given(limit=limits, wishes=tokens, drafts=tokens)
def test_a_draft_counts_up_to_the_first_token_that_is_not_the_demanded_one(
    limit: ReasoningLimit, wishes: list[int], drafts: list[int]
) -> None:
    text = written(limit, wishes)
    rules = LimitedReasoning(limit)
    rules.consume(text)
    copy = rules.fork()

    legal = rules.legal(drafts)

    for count in range(legal):
        assert demanded(limit, text + drafts[:count]) in (None, drafts[count])
    if legal < len(drafts):
        assert demanded(limit, text + drafts[:legal]) not in (None, drafts[legal])
    rules.consume(drafts[:legal])
    assert copy.forced() == LimitedReasoning.forced(copy.fork())


def test_no_more_tokens_are_reasoned_than_the_limit_says() -> None:
    limit = ReasoningLimit(tokens=3, closing=(BRIDGE, CLOSE), inside=True)

    text = written(limit, [0] * 8)

    assert text == [0, 0, 0, BRIDGE, CLOSE, 0, 0, 0]
