# SPDX-License-Identifier: Apache-2.0
"""Does sampling with drafts keep the target's distribution? Draw and count.

A prompt is read once. Then the token after it is drawn many times, each time the way a
cycle draws it: the drafter proposes, the acceptance rule keeps or replaces. The counts
are compared with the distribution the target's logits define, and with as many draws
without drafts. Tokens that are expected fewer than five times share one bin.

Only the first token of a cycle is looked at: its distribution does not depend on the
rest of the block, so the target's pass need not be repeated for every draw.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from splashpy.bench.session import Session
from splashpy.drafting.drafter import Drafter, DraftSampling, Proposal
from splashpy.engine.decision import decide, read
from splashpy.engine.prefill import prefill
from splashpy.engine.request import GenerationRequest
from splashpy.engine.sequence import Sequence
from splashpy.verification.sampling import SamplingParams, score

DRAWS = 2000
FAILS_BELOW = 0.001  # p-value
_EXPECTED_AT_LEAST = 5.0  # per bin, the usual condition of the test


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingTest:
    """What the draws showed.

    Attributes:
        draws: per arm.
        drafted: draws for which a draft was made.
        accepted: of those, draws whose draft was kept.
        p_drafted: p-value of the draws with drafts against the target.
        p_plain: p-value of the draws without drafts against the target.
        bins: tokens, or groups of rare tokens, told apart.
    """

    draws: int
    drafted: int
    accepted: int
    p_drafted: float
    p_plain: float
    bins: int

    @property
    def passed(self) -> bool:
        """Whether both arms agree with the target."""
        return min(self.p_drafted, self.p_plain) >= FAILS_BELOW


def sampling_test(
    session: Session,
    token_ids: tuple[int, ...],
    *,
    sampling: SamplingParams,
    draws: int = DRAWS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> SamplingTest:
    """Draw the first token of a cycle ``draws`` times with drafts and without.

    Args:
        session: a loaded model.
        token_ids: the prompt; its last token becomes the anchor of every draw.
        sampling: temperature above 0.
        draws: per arm.
        progress: called with (draws done, draws in all).
    """
    sequence = _read(session, token_ids, sampling)
    logits = session.target.forward(
        sequence.state, sequence.anchor[None], rows=1
    ).logits
    sequence.state.roll_back(len(token_ids) - 1)
    scores = score(logits, sampling)[0]
    mx.eval(logits, scores)
    counts: dict[Drafter, Counter[int]] = {}
    drafted = accepted = done = 0
    for drafter in (session.drafter, session.plain):
        counts[drafter] = Counter()
        for _ in range(draws):
            proposal = _propose(sequence, drafter, done)
            token, kept = _draw(sequence, logits, proposal)
            counts[drafter][token] += 1
            drafted += len(proposal) > 0
            accepted += kept > 0
            done += 1
            progress(done, 2 * draws)
    expected: Any = (draws * mx.softmax(scores, precise=True)).tolist()
    p_values = {d: _p_value(counts[d], expected) for d in counts}
    return SamplingTest(
        draws=draws,
        drafted=drafted,
        accepted=accepted,
        p_drafted=p_values[session.drafter][0],
        p_plain=p_values[session.plain][0],
        bins=p_values[session.plain][1],
    )


def _read(
    session: Session, token_ids: tuple[int, ...], sampling: SamplingParams
) -> Sequence:
    """A sequence that has read all but the last prompt token."""
    drafter = session.drafter
    request = GenerationRequest(
        id="draws",
        token_ids=token_ids[:-1],
        sampling=sampling,
        seed=0,
        prefill_only=True,
    )
    sequence = Sequence(
        request=request,
        state=session.target.new_state(len(token_ids)),
        drafter=drafter,
        drafter_state=drafter.new_state(),
        budget=2,
        tokens=list(token_ids[:-1]),
        anchor=mx.array(token_ids[-1], dtype=mx.int32),
    )
    for _ in prefill(sequence, session.target, lambda: False):
        pass
    drafter.observe(sequence.drafter_state, token_ids[-1:], None, len(token_ids) - 1)
    return sequence


def _propose(sequence: Sequence, drafter: Drafter, index: int) -> Proposal:
    sequence.cycle = index + 1
    return drafter.propose(
        sequence.drafter_state,
        sequence.anchor,
        1,
        DraftSampling(
            temperature=sequence.request.sampling.temperature,
            seed=index,
            position=sequence.state.length + 1,
            cycle=sequence.cycle,
        ),
    )


def _draw(sequence: Sequence, logits: mx.array, proposal: Proposal) -> tuple[int, int]:
    """The token a cycle commits first, and how many drafted tokens it keeps."""
    position = sequence.state.length
    rows = mx.broadcast_to(logits, (len(proposal) + 1, logits.shape[1]))
    sequence.request = _with_seed(sequence.request, sequence.cycle)
    verdict = read(decide(sequence, rows, proposal, position), position)
    return verdict.run[0], verdict.kept


def _with_seed(request: GenerationRequest, seed: int) -> GenerationRequest:
    return GenerationRequest(
        id=request.id,
        token_ids=request.token_ids,
        sampling=request.sampling,
        seed=seed,
    )


def _p_value(counts: Counter[int], expected: list[float]) -> tuple[float, int]:
    """p-value of observed against expected counts, and the number of bins."""
    bins: list[tuple[float, float]] = []
    rare_seen = rare_expected = 0.0
    for token, mean in enumerate(expected):
        if mean >= _EXPECTED_AT_LEAST:
            bins.append((counts[token], mean))
        else:
            rare_seen += counts[token]
            rare_expected += mean
    if rare_expected >= _EXPECTED_AT_LEAST:
        bins.append((rare_seen, rare_expected))
    elif rare_seen > rare_expected + _EXPECTED_AT_LEAST * 4:
        return 0.0, len(bins)  # far more impossible tokens than chance explains
    chi_square = sum((seen - mean) ** 2 / mean for seen, mean in bins)
    return chi_square_tail(chi_square, len(bins) - 1), len(bins)


def chi_square_tail(value: float, freedom: int) -> float:
    """Probability that a chi-square variable exceeds ``value``.

    Source: E. Wilson, M. Hilferty, "The distribution of chi-square", PNAS 1931: its
    cube root is nearly normal.
    """
    if freedom < 1:
        return 1.0
    spread = 2 / (9 * freedom)
    z = ((value / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return math.erfc(z / math.sqrt(2)) / 2
