# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities from a real target to the events of a real host."""

from __future__ import annotations

import base64
from typing import Any

from splashpy.protocol import Cycle, Prefill, Sampling


def told(events: list[Any], kind: type) -> list[Any]:
    found = [event for event in events if isinstance(event, kind)]
    return [token for event in found for token in event.logprobs]


def test_an_answer_is_ranked_alike_with_drafts_and_without(conversation: Any) -> None:
    bias = Sampling(logit_bias=((66, 100.0), (67, 100.0)), seed=4)
    wish = {"prompt": "abcabcabcabc", "sampling": bias, "logprobs": 3}

    drafted = conversation.ask(**wish, prompt_logprobs=1)
    plain = conversation.ask(**wish, draft=False)

    ranked = told(drafted, Cycle)
    assert ranked == told(plain, Cycle)
    assert len(ranked) == drafted[-1].usage.completion
    assert all(len(token.top) == 3 for token in ranked)
    text = b"".join(base64.b64decode(token.piece) for token in ranked)
    pieces = [p.text for e in drafted if isinstance(e, Cycle) for p in e.pieces]
    assert text.decode(errors="replace") == "".join(pieces)
    prompt = told(drafted, Prefill)
    assert b"".join(base64.b64decode(t.piece) for t in prompt) == b"abcabcabcabc"
    assert told(plain, Prefill) == []
