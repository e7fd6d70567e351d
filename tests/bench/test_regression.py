# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from bench.legs import SETTINGS, document, leg

from splashpy.bench.document import summarize
from splashpy.bench.regression import deltas
from splashpy.errors import UsageError


def names(found: list) -> list[str]:
    return [delta.name for delta in found if delta.regressed]


def test_two_equal_runs_have_no_regression() -> None:
    found = deltas(document(2.0), document(2.0), 0.02)
    assert [delta.name for delta in found] == [
        "speedup.geomean",
        "quick.draft.decode_tok_s",
        "quick.plain.decode_tok_s",
    ]
    assert names(found) == []


def test_three_percent_less_is_one_where_two_are_allowed() -> None:
    found = deltas(document(2.0), document(1.94), 0.02)
    assert names(found) == ["speedup.geomean", "quick.draft.decode_tok_s"]
    assert found[0].change == pytest.approx(-0.03)
    assert names(deltas(document(2.0), document(1.94), 0.05)) == []


def test_being_faster_is_none() -> None:
    assert names(deltas(document(2.0), document(3.0), 0.0)) == []


def test_noisy_repeats_allow_twice_their_spread() -> None:
    noisy = document(2.0)
    noisy["speedup"]["spread"] = 0.03
    assert names(deltas(noisy, document(1.92), 0.02)) == []
    assert names(deltas(noisy, document(1.85), 0.02)) != []


def test_another_machine_compares_ratios_only() -> None:
    elsewhere = document(2.0, environment={"machine": "another", "blas": "openblas"})
    assert [d.name for d in deltas(elsewhere, document(2.0), 0.02)] == [
        "speedup.geomean"
    ]


@pytest.mark.parametrize("name", ["model", "suites", "max_tokens", "sampling"])
def test_runs_that_measured_different_things_are_refused(name: str) -> None:
    other = document(2.0, settings={**SETTINGS, name: "something else"})
    with pytest.raises(UsageError, match="measured different things") as raised:
        deltas(other, document(2.0), 0.02)
    assert name in raised.value.why


def test_runs_without_a_common_figure_are_refused() -> None:
    alone = summarize(
        [leg("plain", 10.0)], settings=SETTINGS, environment={}, complete=True
    )
    with pytest.raises(UsageError, match="share no figure"):
        deltas(alone, document(2.0), 0.02)
