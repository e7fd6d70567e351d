# SPDX-License-Identifier: Apache-2.0
"""The numbers under an answer, recomputed by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.chat import meters
from splashpy.protocol import Cycle, Done, Prefill, Spec, Timing, Usage


def cycle(i: int, committed: int) -> Cycle:
    return Cycle(
        id="a",
        i=i,
        drafted=7 if i else 0,
        accepted=committed - 1,
        committed=committed,
        draft_ms=0,
        verify_ms=0,
        pieces=(),
    )


def done(**changes: Any) -> Done:
    values: dict[str, Any] = {
        "id": "a",
        "reason": "stop",
        "usage": Usage(prompt=32_768, cached=32_666, completion=212),
        "timing": Timing(ttft_ms=280.0, decode_ms=2_914.4, first_emission_tokens=1),
        "spec": Spec(cycles=44, drafted=308, accepted=167, tau=4.8068),
    }
    return Done(**(values | changes))


def test_before_the_first_token_nothing_is_known() -> None:
    meter = meters.LiveMeter()

    assert meter.rate(1.0) is None
    assert meter.acceptance_length is None
    assert meters.UNKNOWN == "\N{EN DASH}"
    assert meters.format_rate(meter.rate(1.0)) == f"{meters.UNKNOWN} tok/s"
    assert (
        meters.format_acceptance(meter.acceptance_length, 8) == f"τ {meters.UNKNOWN}/8"
    )


def test_the_acceptance_length_leaves_out_the_prefill_token() -> None:
    meter = meters.LiveMeter()
    meter.add(cycle(0, 1), 0.0)
    assert meter.acceptance_length is None

    meter.add(cycle(1, 8), 0.1)
    meter.add(cycle(2, 1), 0.2)

    assert meter.acceptance_length == 4.5
    assert meter.committed == 10


def test_the_live_rate_counts_three_seconds_and_forgets_older_tokens() -> None:
    meter = meters.LiveMeter()
    meter.add(cycle(0, 1), 0.0)
    for tenth in range(1, 101):
        meter.add(cycle(tenth, 5), tenth / 10)

    assert meter.rate(10.0) == pytest.approx(50.0)
    assert meter.rate(12.0) == pytest.approx(5 * 10 / 3.0)
    assert meter.rate(20.0) == 0.0


def test_the_live_rate_starts_with_the_first_token() -> None:
    meter = meters.LiveMeter()
    meter.add(cycle(0, 1), 7.0)
    assert meter.rate(7.01) is None
    assert meter.rate(7.4) is None  # no pass has ended since

    meter.add(cycle(1, 4), 7.5)

    assert meter.rate(8.0) == pytest.approx(4.0)


def test_the_live_rate_of_late_cycles_is_right_from_the_beginning() -> None:
    meter, waiting, shown = meters.LiveMeter(late=0.3), 0, []
    meter.add(cycle(0, 1), 0.0)
    for number in range(1, 201):
        now = number * 0.05
        waiting += 1
        if number % 6 == 0:  # told every 0.3 seconds
            for _ in range(waiting):
                meter.add(cycle(number, 1), now)
            waiting = 0
        if number % 10 == 0:  # drawn every half second
            shown.append(meter.rate(now))
    assert shown == pytest.approx([20.0] * len(shown), rel=0.1)


def test_a_live_rate_falls_once_cycles_are_later_than_they_may_be() -> None:
    meter = meters.LiveMeter(late=0.25)
    meter.add(cycle(0, 1), 0.0)
    meter.add(cycle(1, 10), 1.0)
    assert meter.rate(1.2) == pytest.approx(10.0)
    assert meter.rate(2.25) == pytest.approx(5.0)
    assert meter.rate(4.5) == 0.0


def test_the_final_rate_leaves_out_the_first_emission() -> None:
    assert meters.final_rate(done()) == pytest.approx(211 / 2.9144)
    assert meters.final_rate(done(timing=Timing(decode_ms=49.0))) is None


def test_the_line_under_an_answer() -> None:
    assert meters.summary(done()) == (
        "212 tokens · 72.4 tok/s · τ 4.81 · first token 0.28 s · "
        "31.9K of 32K prompt cached"
    )


def test_what_is_not_known_is_a_dash() -> None:
    line = meters.summary(
        done(
            reason="cancelled",
            usage=Usage(prompt=100, completion=1),
            timing=Timing(ttft_ms=1_000.0),
            spec=Spec(),
        )
    )

    dash = meters.UNKNOWN
    assert line == (
        f"1 token · {dash} tok/s · τ {dash} · first token 1.00 s · "
        "0 of 100 prompt cached · stopped"
    )


def test_an_answer_without_a_token_has_no_speed() -> None:
    line = meters.summary(
        done(reason="cancelled", usage=Usage(prompt=100), timing=Timing(), spec=Spec())
    )

    assert line == "0 tokens · 0 of 100 prompt cached · stopped"


@pytest.mark.parametrize(
    ("reason", "word"),
    [("length", "length limit"), ("context_full", "context full")],
)
def test_an_unusual_end_is_named(reason: str, word: str) -> None:
    assert meters.summary(done(reason=reason)).endswith(f" · {word}")


def test_the_prefill_rate_counts_computed_tokens_only() -> None:
    half = Prefill(id="a", total=100, cached=40, processed=60, elapsed_ms=500)

    assert meters.prefill_rate(half) == 40.0


def test_nothing_computed_gives_no_prefill_rate() -> None:
    start = Prefill(id="a", total=100, cached=40, processed=40, elapsed_ms=500)

    assert meters.prefill_rate(start) is None


def test_the_sparkline_has_a_fixed_scale() -> None:
    assert "".join(meters.spark_bar(n, 8) for n in range(1, 9)) == "▁▂▃▄▅▆▇█"
    assert "".join(meters.spark_bar(n, 4) for n in range(1, 5)) == "▂▄▆█"
    assert meters.spark_bar(1, 1) == "█"


@given(st.integers(0, 100), st.integers(0, 32))
def test_every_count_has_a_bar(committed: int, block_size: int) -> None:
    assert len(meters.spark_bar(committed, block_size)) == 1


def test_the_sparkline_remembers_the_latest_passes() -> None:
    meter = meters.LiveMeter()
    for i in range(100):
        meter.add(cycle(i, 1 + i % 8), float(i))

    assert list(meter.spark) == [1 + i % 8 for i in range(68, 100)]
