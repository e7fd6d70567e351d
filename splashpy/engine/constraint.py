# SPDX-License-Identifier: Apache-2.0
"""The target's logits of an answer that follows rules."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import mlx.core as mx

from splashpy.drafting.drafter import Proposal
from splashpy.engine.sequence import Sequence
from splashpy.verification.reasoning import AnswerRules


def constrained(sequence: Sequence, logits: mx.array, proposal: Proposal) -> mx.array:
    """Logits with -inf where the rules forbid a token; as they are where none applies.

    The pass is started first, so the parser works while the target computes.

    Args:
        sequence: whose rules apply.
        logits: [K + 1, V], unevaluated; row j follows j drafted tokens.
        proposal: what was drafted.

    Raises:
        UsageError: the grammar takes too much work.
    """
    rules = rules_within(sequence, logits.shape[0])
    if rules is None:
        return logits
    mx.async_eval(logits)
    drafts: Any = proposal.token_ids.tolist()
    started = perf_counter()
    restricted = rules.apply(logits, drafts)
    sequence.mask_seconds += perf_counter() - started
    return restricted


def rules_within(sequence: Sequence, rows: int) -> AnswerRules | None:
    """The rules of an answer; None where they forbid nothing in the next rows.

    Args:
        sequence: whose rules.
        rows: of the pass about to start. Tokens in flight, which the rules do not
            know yet, are counted in.
    """
    rules = sequence.grammar
    in_flight = max(sequence.launched - sequence.emitted, 0)
    if rules is None or rules.free(rows + in_flight):
        return None
    return rules
