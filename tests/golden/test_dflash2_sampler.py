# SPDX-License-Identifier: Apache-2.0
"""Processed distributions and rejection sampling, against stored results."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from splashpy.verification.rejection import reject
from splashpy.verification.sampling import SamplingParams, score


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def numbers(fractions: Sequence[str]) -> mx.array:
    return mx.array([float(Fraction(text)) for text in fractions])


def test_processed_distributions(stored: Path) -> None:
    data = read(stored / "sampler" / "target_probabilities.json")
    for case in data["cases"]:
        params = SamplingParams(
            temperature=case["temperature"], top_p=case["top_p"], top_k=case["top_k"]
        )
        p = mx.softmax(score(mx.array(data["logits"]), params), axis=-1)
        np.testing.assert_allclose(
            np.array(p), np.array(case["probabilities"]), rtol=0, atol=1e-6
        )


def test_outcomes_for_given_random_numbers(stored: Path) -> None:
    for case in read(stored / "sampler" / "fixed_uniforms.json")["cases"]:
        tokens, count = reject(
            mx.array(case["p"]),
            mx.array(case["draft"], dtype=mx.int32),
            mx.array(case["candidates"], dtype=mx.int32),
            mx.array(case["q"]),
            mx.array(case["uniforms"]),
            mx.array(case["final_uniform"]),
        )
        kept = case["accepted"]
        assert count.item() == kept + 1
        run = [*case["draft"][:kept], case["next_token"]]
        assert tokens[: kept + 1].tolist() == run


def midpoints(*steps: int) -> list[mx.array]:
    """All combinations of the midpoints of equal intervals of [0, 1)."""
    axes = [(mx.arange(count) + 0.5) / count for count in steps]
    return [axis.flatten() for axis in mx.meshgrid(*axes, indexing="ij")]


def exact(fraction: str) -> float:
    return float(Fraction(fraction))


def test_one_slot_emits_exactly_the_targets_distribution(stored: Path) -> None:
    # Acceptance thresholds are multiples of 1/60, edges of the residual of 1/360, so
    # counting midpoints measures every probability exactly.
    u, v = midpoints(60, 360)
    for case in read(stored / "sampler" / "exact_distributions.json")["single_slot"]:
        p, q = numbers(case["target_p"]), numbers(case["q"])
        candidates = mx.array([case["candidates"]], dtype=mx.int32)
        output, accepted = np.zeros(p.shape[0]), 0.0
        for place, token in enumerate(case["candidates"]):
            run = partial(
                reject,
                mx.stack([p, p]),
                mx.array([token], dtype=mx.int32),
                candidates,
                q[None],
            )
            tokens, counts = mx.vmap(run)(u[:, None], v)
            share = (np.array(counts) == 2).mean()
            assert share == exact(case["accept_given_candidate"][place])
            weight = exact(case["q"][place])
            accepted += weight * share
            first = np.bincount(np.array(tokens)[:, 0], minlength=p.shape[0])
            output += weight * first / u.shape[0]
        assert accepted == pytest.approx(exact(case["accept_probability"]), abs=1e-12)
        np.testing.assert_allclose(
            output, [exact(text) for text in case["output"]], atol=1e-12, rtol=0
        )


def test_two_slots_emit_exactly_the_stored_runs(stored: Path) -> None:
    case = read(stored / "sampler" / "exact_distributions.json")["two_slots"]
    # Thresholds of both slots: multiples of 1/2 and of 1/21; of the last draw: 1/30.
    u1, u2, v = midpoints(2, 21, 30)
    slots = [case["slot1"]["candidates"], case["slot2"]["candidates"]]
    emitted: defaultdict[str, float] = defaultdict(float)
    for one, q1 in zip(slots[0], case["slot1"]["q"], strict=True):
        q2_row = case["slot2"]["q_given_slot1"][str(one)]
        for two, q2 in zip(slots[1], q2_row, strict=True):
            rows = [case["p1"], case["p2"][str(one)], case["p3"][f"{one},{two}"]]
            run = partial(
                reject,
                mx.stack([numbers(row) for row in rows]),
                mx.array([one, two], dtype=mx.int32),
                mx.array(slots, dtype=mx.int32),
                mx.stack([numbers(case["slot1"]["q"]), numbers(q2_row)]),
            )
            tokens, counts = mx.vmap(run)(mx.stack([u1, u2], axis=1), v)
            weight = exact(q1) * exact(q2) / v.shape[0]
            for row, count in zip(np.array(tokens), np.array(counts), strict=True):
                emitted[",".join(map(str, row[:count]))] += weight
    assert emitted.keys() == case["emitted"].keys()
    for run_of_tokens, probability in case["emitted"].items():
        assert emitted[run_of_tokens] == pytest.approx(exact(probability), abs=1e-12)
