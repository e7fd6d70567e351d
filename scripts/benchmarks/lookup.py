# SPDX-License-Identifier: Apache-2.0
"""Measure lookup drafting against plain decoding on a text that repeats itself.

The demo model is asked to repeat a sentence; both arms must write the same text. The
lookup arm drafts from the text so far, without the pair's drafter, and the plain arm
decodes one token at a time in the same engine.
"""

from __future__ import annotations

import measure
from demo_pair import open_demo

from splashpy.bench.session import Session
from splashpy.drafting.combined import CombinedDrafter
from splashpy.drafting.drafter import Drafter
from splashpy.drafting.lookup import LookupDrafter
from splashpy.engine.request import TokensCommitted

PROMPT = "Repeat this sentence five times: the quick brown fox jumps over the lazy dog."
TOKENS = 120


def main() -> None:
    options = measure.arguments(__doc__ or "", rounds=5)
    session = open_demo()
    runs: dict[str, list[TokensCommitted]] = {}
    arms = {
        "lookup": arm(session, runs, "lookup", lookup_of(session)),
        "plain": arm(session, runs, "plain", session.plain),
    }
    samples = measure.interleave(arms, options.rounds)
    texts = {
        name: [token for cycle in cycles for token in cycle.token_ids]
        for name, cycles in runs.items()
    }
    same = texts["lookup"] == texts["plain"]
    tau = (len(texts["lookup"]) - 1) / max(len(runs["lookup"]) - 1, 1)
    rates = {name: measure.summary(s, "decode") for name, s in samples.items()}
    ratio = rates["lookup"]["median"] / rates["plain"]["median"]
    document = {
        "schema": "splashpy.bench_lookup/1",
        "prompt": PROMPT,
        "max_tokens": TOKENS,
        "tau": tau,
        "same_text": same,
        "tok_s": rates,
        "ratios": {"copy_vs_plain": ratio},
        "samples": samples,
    }
    rows = [
        ["arm", "decode tok/s", "spread"],
        *[measure.row(name, figure, "") for name, figure in rates.items()],
        ["copy_vs_plain", f"{ratio:.2f}", ""],
        ["tau (target's own token counted)", f"{tau:.2f}", ""],
        ["same text", str(same), ""],
    ]
    measure.report(document, rows, as_json=options.json)
    if not same:
        raise SystemExit("error: lookup changed the text")


def lookup_of(session: Session) -> LookupDrafter:
    """The session's own lookup, which knows what a pass costs here."""
    drafter = session.drafter
    found = drafter.lookup if isinstance(drafter, CombinedDrafter) else drafter
    if not isinstance(found, LookupDrafter):
        raise SystemExit("error: the demo was loaded without lookup")
    return found


def arm(
    session: Session,
    runs: dict[str, list[TokensCommitted]],
    name: str,
    drafter: Drafter,
):
    token_ids = session.prompt_ids(PROMPT)

    def run() -> dict[str, float]:
        events = session.events(
            token_ids, drafter, max_tokens=TOKENS, cancelled=lambda: False
        )
        cycles = [event for event in events if isinstance(event, TokensCommitted)]
        runs[name] = cycles
        tokens = sum(len(cycle.token_ids) for cycle in cycles[1:])
        return {"decode": tokens / (cycles[-1].at - cycles[0].at)}

    return run


if __name__ == "__main__":
    main()
