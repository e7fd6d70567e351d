# SPDX-License-Identifier: Apache-2.0
"""Numbers of one answer, computed from the engine's counts for whoever reads them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from splashpy.protocol import Done, Ready
from splashpy.units import format_bytes, format_seconds, format_tokens

_SHORTEST_SPAN_MS = 50.0  # below this a rate is noise


def decode_rate(done: Done) -> float | None:
    """Tokens per second from the first emission to the last.

    The tokens of the first emission are excluded, because the time before them is the
    prompt's. None when the span is too short to mean anything.
    """
    timing = done.timing
    if timing.decode_ms < _SHORTEST_SPAN_MS:
        return None
    tokens = done.usage.completion - timing.first_emission_tokens
    return tokens / (timing.decode_ms / 1000)


def stats_line(done: Done, ready: Ready) -> str:
    """``212 tok · 72.4 tok/s · τ 4.81/8 · first token 0.28 s · prompt ... · stop``.

    τ is the acceptance length: tokens produced after the prefill token divided by
    verify passes, the target's own token counted, so 1 is plain decoding and the
    drafter's block size is the most without lookup.
    """
    scale = f"/{ready.block_size}" if done.spec.tau <= ready.block_size else ""
    rate = decode_rate(done)
    usage = done.usage
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    parts = [
        f"{usage.completion:,} tok",
        "- tok/s" if rate is None else f"{rate:.1f} tok/s",
        f"τ {done.spec.tau:.2f}{scale}" if done.spec.cycles else "",
        f"first token {format_seconds(done.timing.ttft_ms / 1000)}",
        f"prompt {usage.prompt:,}{cached}",
        done.reason,
    ]
    return " · ".join(part for part in parts if part)


def decisions_line(done: Done) -> str:
    """``passes 12 plain, 40 drafted, 3 looked up · 31.2 plain steps saved, 2.0 lost``.

    What was decided before every pass of the target, and what came of it: a pass that
    commits more tokens than it costs saves plain steps, one that commits fewer loses
    them. Empty where there was no pass, or nobody noted what was decided.
    """
    spec = done.spec
    if not spec.plain_cycles + spec.drafter_cycles + spec.lookup_cycles:
        return ""
    return (
        f"passes {spec.plain_cycles:,} plain, {spec.drafter_cycles:,} drafted, "
        f"{spec.lookup_cycles:,} looked up · {spec.saved:,.1f} plain steps saved, "
        f"{spec.regret:,.1f} lost"
    )


def memory_line(ready: Ready) -> str:
    """The plan: what is loaded, what a full context adds, of how much.

    Empty where nobody knows what the machine gives.
    """
    plan = ready.memory
    if not plan.budget:
        return ""
    rows = ready.context_max * plan.kv_per_token
    parts = [
        f"weights {format_bytes(plan.weights)}",
        f"draft {format_bytes(plan.draft)}",
        f"workspace {format_bytes(plan.workspace)}",
        f"{format_bytes(rows)} for {format_tokens(ready.context_max)} tokens "
        f"of context in {plan.kv}",
    ]
    total = plan.weights + plan.draft + plan.workspace + rows
    whole = f"{format_bytes(total)} of {format_bytes(plan.budget)}"
    return f"memory {' + '.join(parts)} = {whole}"


def json_fields(done: Done) -> dict[str, Any]:
    """``finish_reason``, ``usage``, ``timing`` and ``spec`` of a JSON result."""
    rate = decode_rate(done)
    timing = asdict(done.timing)
    timing["decode_tok_s"] = None if rate is None else round(rate, 2)
    return {
        "finish_reason": done.reason,
        "usage": asdict(done.usage),
        "timing": timing,
        "spec": asdict(done.spec),
    }
