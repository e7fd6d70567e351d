# SPDX-License-Identifier: Apache-2.0
"""Measure lookup drafting against plain decoding on a text that repeats itself.

The demo model is asked to repeat a sentence; both arms must write the same text. The
lookup arm drafts from the text so far, the plain arm decodes one token at a time in
the same engine.
"""

from __future__ import annotations

import measure

import splashpy
from splashpy.api import Model, Reply
from splashpy.protocol import LoadOptions

PROMPT = "Repeat this sentence five times: the quick brown fox jumps over the lazy dog."
TOKENS = 120


def main() -> None:
    options = measure.arguments(__doc__ or "", rounds=5)
    last: dict[str, Reply] = {}
    with splashpy.load("demo", options=LoadOptions(prefix_cache=False)) as model:
        arms = {
            "lookup": arm(model, last, "lookup", draft=True),
            "plain": arm(model, last, "plain", draft=False),
        }
        samples = measure.interleave(arms, options.rounds)
        draft = model.ready.draft
    same = last["lookup"].text == last["plain"].text
    rates = {name: measure.summary(s, "decode") for name, s in samples.items()}
    ratio = rates["lookup"]["median"] / rates["plain"]["median"]
    document = {
        "schema": "splashpy.bench_lookup/1",
        "prompt": PROMPT,
        "max_tokens": TOKENS,
        "draft": {"state": draft.state, "reason": draft.reason},
        "tau": last["lookup"].spec.tau,
        "same_text": same,
        "tok_s": rates,
        "ratios": {"copy_vs_plain": ratio},
        "samples": samples,
    }
    rows = [
        ["arm", "decode tok/s", "spread"],
        *[measure.row(name, figure, "") for name, figure in rates.items()],
        ["copy_vs_plain", f"{ratio:.2f}", ""],
        ["tau (target's own token counted)", f"{document['tau']:.2f}", ""],
        ["same text", str(same), ""],
    ]
    measure.report(document, rows, as_json=options.json)
    if not same:
        raise SystemExit("error: lookup changed the text")


def arm(model: Model, last: dict[str, Reply], name: str, *, draft: bool):
    def run() -> dict[str, float]:
        reply = model.generate(PROMPT, temperature=0.0, max_tokens=TOKENS, draft=draft)
        last[name] = reply
        tokens = reply.usage.completion - reply.timing.first_emission_tokens
        return {"decode": 1e3 * tokens / reply.timing.decode_ms}

    return run


if __name__ == "__main__":
    main()
