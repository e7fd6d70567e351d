# SPDX-License-Identifier: Apache-2.0
"""Counts of a server, and how Prometheus reads them.

Names of speculation follow vLLM's counters behind our prefix, so dashboards need no
more than that prefix changed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from splashpy.protocol import Done
from splashpy.server.outcome import decisions, timings

PREFIX = "splashpy_"
_BUCKETS = (*(0.005 * 2**n for n in range(17)), 600.0)
Labels = tuple[tuple[str, str], ...]
Gauge = float | dict[Labels, float]

COUNTERS: dict[str, str] = {
    "requests_total": "Requests by endpoint and outcome.",
    "http_responses_total": "Answers by endpoint and status.",
    "prompt_tokens_total": "Tokens of prompts.",
    "cached_prompt_tokens_total": "Tokens of prompts that were in the cache.",
    "generated_tokens_total": "Tokens of answers.",
    "reasoning_tokens_total": "Tokens of answers that are reasoning.",
    "spec_decode_num_drafts_total": "Verify passes that had drafts.",
    "spec_decode_num_draft_tokens_total": "Tokens proposed.",
    "spec_decode_num_accepted_tokens_total": "Proposed tokens that were kept.",
    "spec_decode_num_accepted_tokens_per_pos_total": "The same by draft position.",
    "spec_decode_decisions_total": "Verify passes by who drafted: plain is nobody.",
    "spec_decode_saved_steps_total": "Plain steps saved by passes that paid.",
    "spec_decode_regret_steps_total": "Plain steps lost by passes that did not.",
    "prefix_cache_hits_total": "Requests that found part of their prompt cached.",
    "prefix_cache_misses_total": "Requests that did not.",
    "ignored_fields_total": "Fields of requests that nothing here reads.",
    "engine_restarts_total": "Engines that died and were started again.",
    "requests_replayed_total": "Requests that began anew at another engine.",
    "model_unloads_total": "Times the model was unloaded for want of requests.",
}
HISTOGRAMS: dict[str, str] = {
    "ttft_seconds": "From acceptance to the first token.",
    "queue_seconds": "Waiting for the engine.",
    "prefill_seconds": "Reading the prompt.",
    "e2e_seconds": "From acceptance to the last token.",
    "constraint_mask_seconds": "What answers of a given form may hold, per answer.",
    "inter_token_seconds": "Mean time between tokens of an answer.",
}


class Metrics:
    """The counts of one server since it started."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[Labels, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        self._buckets = {name: [0] * (len(_BUCKETS) + 1) for name in HISTOGRAMS}
        self._sums = dict.fromkeys(HISTOGRAMS, 0.0)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count something."""
        self._counts[name][tuple(labels.items())] += amount

    def put(self, name: str, value: float) -> None:
        """Take over a counter that somebody else keeps."""
        self._counts[name][()] = value

    def total(self, name: str, **labels: str) -> float:
        """The sum of a counter over everything not named in ``labels``."""
        return sum(
            amount
            for found, amount in self._counts[name].items()
            if labels.items() <= dict(found).items()
        )

    def observe(self, name: str, seconds: float) -> None:
        """Add to a histogram."""
        place = sum(seconds > bound for bound in _BUCKETS)
        self._buckets[name][place] += 1
        self._sums[name] += seconds

    def note(self, done: Done) -> None:
        """Count an answer."""
        usage, timing, spec = done.usage, done.timing, done.spec
        self.add("prompt_tokens_total", usage.prompt)
        self.add("cached_prompt_tokens_total", usage.cached)
        self.add("generated_tokens_total", usage.completion)
        self.add("reasoning_tokens_total", usage.reasoning)
        self.add("spec_decode_num_drafts_total", spec.cycles - spec.plain_cycles)
        self.add("spec_decode_num_draft_tokens_total", spec.drafted)
        self.add("spec_decode_num_accepted_tokens_total", spec.accepted)
        for by, cycles in decisions(spec).items():
            self.add("spec_decode_decisions_total", cycles, by=by)
        self.add("spec_decode_saved_steps_total", spec.saved)
        self.add("spec_decode_regret_steps_total", spec.regret)
        for position, accepted in enumerate(spec.accepted_per_position):
            name = "spec_decode_num_accepted_tokens_per_pos_total"
            self.add(name, accepted, position=str(position))
        hit = "prefix_cache_hits_total" if usage.cached else "prefix_cache_misses_total"
        self.add(hit)
        self.observe("queue_seconds", timing.queue_ms / 1e3)
        self.observe("prefill_seconds", timing.prefill_ms / 1e3)
        if timing.first_emission_tokens:
            self.observe("ttft_seconds", timing.ttft_ms / 1e3)
            self.observe("e2e_seconds", (timing.ttft_ms + timing.decode_ms) / 1e3)
        if done.valid is not None:
            self.observe("constraint_mask_seconds", timing.mask_ms / 1e3)
        later = usage.completion - timing.first_emission_tokens
        if later > 0:
            self.observe("inter_token_seconds", timing.decode_ms / 1e3 / later)

    def describe(self, done: Done) -> dict[str, Any]:
        """What ``/status`` says about the last answer."""
        return {"finish": done.reason, **timings(done), "tau": round(done.spec.tau, 4)}

    def line(self, done: Done) -> str:
        """One line about an answer, for a person."""
        rate = timings(done)["predicted_per_second"]
        return (
            f"prompt {done.usage.prompt} ({done.usage.cached} cached), "
            f"answer {done.usage.completion}, {rate:.1f} tok/s, "
            f"tau {done.spec.tau:.2f}, {done.reason}"
        )

    def render(self, gauges: dict[str, tuple[str, Gauge]], info: dict[str, str]) -> str:
        """Everything in Prometheus' text format 0.0.4.

        Args:
            gauges: help and present value by name; one with labels has several.
            info: labels of the gauge ``info``.
        """
        lines = _family("info", "gauge", "What is running.")
        lines.append(f"{PREFIX}info{_labels(tuple(info.items()))} 1")
        for name, (text, value) in gauges.items():
            values = value if isinstance(value, dict) else {(): value}
            lines += _family(name, "gauge", text)
            lines += [
                f"{PREFIX}{name}{_labels(labels)} {_number(each)}"
                for labels, each in values.items()
            ]
        for name, text in COUNTERS.items():
            lines += _family(name, "counter", text)
            counts = self._counts[name] or ({} if name in _LABELLED else {(): 0.0})
            for labels, value in counts.items():
                lines.append(f"{PREFIX}{name}{_labels(labels)} {_number(value)}")
        for name, text in HISTOGRAMS.items():
            lines += [*_family(name, "histogram", text), *self._histogram(name)]
        return "\n".join(lines) + "\n"

    def _histogram(self, name: str) -> list[str]:
        lines, below = [], 0
        for bound, count in zip((*_BUCKETS, None), self._buckets[name], strict=True):
            below += count
            label = "+Inf" if bound is None else _number(bound)
            lines.append(f'{PREFIX}{name}_bucket{{le="{label}"}} {below}')
        lines.append(f"{PREFIX}{name}_sum {_number(self._sums[name])}")
        return [*lines, f"{PREFIX}{name}_count {below}"]


_LABELLED = (
    "requests_total",
    "http_responses_total",
    "spec_decode_num_accepted_tokens_per_pos_total",
    "spec_decode_decisions_total",
)


def _family(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} {kind}"]


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    escaped = (
        (k, v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        for k, v in labels
    )
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped) + "}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)
