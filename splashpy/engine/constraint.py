# SPDX-License-Identifier: Apache-2.0
"""The target's logits of an answer that follows a grammar."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from splashpy.drafting.drafter import Proposal
from splashpy.engine.sequence import Sequence
from splashpy.verification.grammar import restrict


def constrained(sequence: Sequence, logits: mx.array, proposal: Proposal) -> mx.array:
    """Logits with -inf where the grammar forbids a token; as they are without one.

    The pass is started first, so the parser works while the target computes.

    Args:
        sequence: whose grammar applies.
        logits: [K + 1, V], unevaluated; row j follows j drafted tokens.
        proposal: what was drafted.

    Raises:
        UsageError: the grammar takes too much work.
    """
    if sequence.grammar is None:
        return logits
    mx.async_eval(logits)
    drafts: Any = proposal.token_ids.tolist()
    return restrict(logits, sequence.grammar.masks(drafts))
