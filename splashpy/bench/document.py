# SPDX-License-Identifier: Apache-2.0
"""From legs to the figures people ask for; pure.

Schema of the document: ``splashpy.bench/1``. Rates are tokens a second, times
milliseconds, sizes bytes, acceptance lengths count the target's own token. What was
not measured is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from splashpy.bench.leg import Leg, pairs, summed
from splashpy.bench.statistics import Speedup, percentile, speedup


def summarize(
    legs: Sequence[Leg],
    *,
    settings: Mapping[str, Any],
    environment: Mapping[str, Any],
    complete: bool,
) -> dict[str, Any]:
    """The document, all but the name of its schema.

    Args:
        legs: everything that was measured.
        settings: what was asked for: model, suites, arms and so on.
        environment: where it was measured.
        complete: False when it was stopped before its end.
    """
    legs = list(legs)
    by_suite: dict[str, list[Leg]] = {}
    for leg in legs:
        by_suite.setdefault(leg.suite, []).append(leg)
    whole = speedup_of(legs)
    return {
        "complete": complete,
        "settings": dict(settings),
        "environment": dict(environment),
        "speedup": whole.fields() if whole else None,
        "texts": _texts(legs),
        "suites": {name: _suite(found) for name, found in by_suite.items()},
        "concurrency": _concurrency(legs),
        "prompts": _prompts(legs, whole),
        "counters": _counters([leg for leg in legs if leg.arm == "draft"]),
    }


def speedup_of(legs: list[Leg]) -> Speedup | None:
    """Decode rate with drafts against plain decoding; None without pairs."""
    ratios: dict[str, list[float]] = {}
    for ours, plain in pairs(legs, "draft", "plain"):
        if ours.decode_rate and plain.decode_rate:
            ratio = ours.decode_rate / plain.decode_rate
            ratios.setdefault(key(ours), []).append(ratio)
    return speedup(ratios)


def key(leg: Leg) -> str:
    """What names a prompt, and its turn where there are several."""
    turn = f".{leg.turn + 1}" if leg.turn else ""
    return f"{leg.suite}/{leg.prompt}{turn}"


def _suite(legs: list[Leg]) -> dict[str, Any]:
    found = speedup_of(legs)
    arms = dict.fromkeys(leg.arm for leg in legs)
    return {
        "speedup": found.fields() if found else None,
        "arms": {arm: _arm([leg for leg in legs if leg.arm == arm]) for arm in arms},
    }


def _arm(legs: list[Leg]) -> dict[str, Any]:
    rates = [leg.decode_rate for leg in legs if leg.decode_rate]
    firsts = [1e3 * leg.prefill_seconds for leg in legs]
    taus = [leg.tau for leg in legs if leg.tau is not None]
    cycles = sum(leg.cycles for leg in legs)
    drafted = summed([leg.drafted_per_position for leg in legs])
    accepted = summed([leg.accepted_per_position for leg in legs])
    return {
        "requests": len(legs),
        "output_tokens": sum(leg.completion_tokens for leg in legs),
        "decode_tok_s": median(rates) if rates else None,
        "end_to_end_tok_s": median(leg.end_to_end_rate for leg in legs),
        "prefill_tok_s": median(leg.prefill_rate for leg in legs),
        "ttft_ms": {"p50": percentile(firsts, 50), "p95": percentile(firsts, 95)},
        "host_ms_per_cycle": 1e3 * sum(leg.host_seconds for leg in legs) / cycles
        if cycles and any(leg.host_seconds for leg in legs)
        else None,
        "peak_bytes": max(leg.peak_bytes for leg in legs),
        "tau": fmean(taus) if taus else None,
        "committed": summed([leg.committed for leg in legs]),
        "acceptance_per_position": [
            kept / made for kept, made in zip(accepted, drafted, strict=True)
        ],
    }


def _concurrency(legs: list[Leg]) -> list[dict[str, Any]]:
    """What people who ask at the same time get together, and each of them."""
    rounds: dict[str, dict[int, list[Leg]]] = {}
    if any(leg.people > 1 for leg in legs):
        for leg in legs:
            rounds.setdefault(leg.arm, {}).setdefault(leg.trial, []).append(leg)
    return [_together(arm, list(found.values())) for arm, found in rounds.items()]


def _together(arm: str, rounds: list[list[Leg]]) -> dict[str, Any]:
    legs = [leg for found in rounds for leg in found]
    firsts = [1e3 * leg.prefill_seconds for leg in legs]
    rates = [leg.decode_rate for leg in legs if leg.decode_rate]
    totals = [
        sum(leg.completion_tokens for leg in found) / seconds
        for found in rounds
        if (seconds := _wall_seconds(found))
    ]
    return {
        "arm": arm,
        "people": legs[0].people,
        "requests": len(legs),
        "aggregate_tok_s": median(totals) if totals else None,
        "request_tok_s": median(rates) if rates else None,
        "ttft_ms": {"p50": percentile(firsts, 50), "p95": percentile(firsts, 95)},
    }


def _wall_seconds(legs: list[Leg]) -> float:
    ends = [
        leg.began_seconds + leg.prefill_seconds + leg.decode_seconds for leg in legs
    ]
    return max(ends) - min(leg.began_seconds for leg in legs)


def _prompts(legs: list[Leg], whole: Speedup | None) -> list[dict[str, Any]]:
    rows = []
    for name in dict.fromkeys(map(key, legs)):
        of_prompt = [leg for leg in legs if key(leg) == name]
        estimate = whole.by_prompt.get(name) if whole else None
        first = of_prompt[0]
        rows.append(
            {
                "prompt": name,
                "kind": first.kind,
                "tokens": first.completion_tokens,
                "ratio": estimate.value if estimate else None,
                "low": estimate.low if estimate else None,
                "high": estimate.high if estimate else None,
                "tau": _mean_tau(of_prompt),
                "decode_tok_s": {
                    arm: _middle([a.decode_rate for a in of_prompt if a.arm == arm])
                    for arm in dict.fromkeys(leg.arm for leg in of_prompt)
                },
            }
        )
    return rows


def _mean_tau(legs: list[Leg]) -> float | None:
    taus = [leg.tau for leg in legs if leg.arm == "draft" and leg.tau is not None]
    return fmean(taus) if taus else None


def _middle(rates: Sequence[float | None]) -> float | None:
    known = [rate for rate in rates if rate]
    return median(known) if known else None


def _texts(legs: list[Leg]) -> dict[str, int]:
    outcomes = [leg.outcome for leg in legs if leg.outcome]
    return {
        "compared": len(outcomes),
        "near_ties": outcomes.count("tie"),
        "mismatches": outcomes.count("mismatch"),
    }


def _counters(legs: list[Leg]) -> dict[str, Any]:
    """Totals under the names vLLM gives its counters."""
    accepted = summed([leg.accepted_per_position for leg in legs])
    return {
        "vllm:spec_decode_num_drafts": sum(sum(leg.kept.values()) for leg in legs),
        "vllm:spec_decode_num_draft_tokens": sum(leg.drafted for leg in legs),
        "vllm:spec_decode_num_accepted_tokens": sum(leg.accepted for leg in legs),
        "vllm:spec_decode_num_accepted_tokens_per_pos": accepted,
        "vllm:prompt_tokens": sum(leg.prompt_tokens for leg in legs),
        "vllm:generation_tokens": sum(leg.completion_tokens for leg in legs),
    }
