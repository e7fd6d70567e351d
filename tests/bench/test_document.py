# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from bench.legs import MACHINE, SETTINGS, document, leg

from splashpy.bench.document import speedup_of, summarize
from splashpy.bench.leg import Leg
from splashpy.bench.plots import speedup_bars, tau_bars
from splashpy.bench.report import HEADS, markdown, rows, speedup_lines, texts_line


def test_a_leg_survives_its_line_of_json() -> None:
    first = leg("draft", 20.0, trial=3, turn=1)
    line = json.dumps(first.fields())
    assert Leg.from_fields(json.loads(line)) == first


def test_the_acceptance_record_agrees_with_itself() -> None:
    """The identities AIPerf refuses a record for."""
    record = leg("draft", 20.0).acceptance()
    assert record is not None
    histogram = {int(n): count for n, count in record["acceptance_histogram"].items()}
    assert sum(histogram.values()) == record["num_spec_steps"] == 50
    weighted = sum(n * count for n, count in histogram.items())
    assert weighted == record["num_accepted_draft_tokens"] == 50
    assert record["num_accepted_draft_tokens"] <= record["num_draft_tokens"] == 80
    assert record["mean_acceptance_length"] == 2.0
    assert leg("plain", 10.0).acceptance() is None


def test_figures_follow_from_the_legs() -> None:
    found = document(2.0)
    assert found["speedup"]["geomean"] == pytest.approx(2.0)
    assert found["speedup"]["worst"] == pytest.approx(2.0)
    draft = found["suites"]["quick"]["arms"]["draft"]
    assert draft["decode_tok_s"] == pytest.approx(20.0)
    assert draft["end_to_end_tok_s"] == pytest.approx(101 / 5.5)
    assert draft["prefill_tok_s"] == pytest.approx(100.0)
    assert draft["ttft_ms"] == {"p50": 500.0, "p95": 500.0}
    assert draft["tau"] == 2.0
    assert draft["committed"] == [40, 120, 40]
    assert draft["acceptance_per_position"] == [0.8, pytest.approx(1 / 3)]
    assert draft["host_ms_per_cycle"] == pytest.approx(2.0)
    assert found["texts"] == {"compared": 4, "near_ties": 0, "mismatches": 0}
    assert found["counters"]["vllm:spec_decode_num_draft_tokens"] == 4 * 80
    assert found["counters"]["vllm:spec_decode_num_accepted_tokens_per_pos"] == [
        160,
        40,
    ]


def test_answers_too_short_to_time_give_no_speed_up() -> None:
    short = [leg(arm, 1e5) for arm in ("draft", "plain")]
    assert speedup_of(short) is None
    found = summarize(short, settings=SETTINGS, environment={}, complete=True)
    assert found["speedup"] is None
    assert found["suites"]["quick"]["arms"]["draft"]["decode_tok_s"] is None
    assert found["prompts"][0]["ratio"] is None
    assert markdown(found)


def test_one_arm_alone_has_rates_and_no_speed_up() -> None:
    found = summarize(
        [leg("plain", 10.0)], settings=SETTINGS, environment={}, complete=True
    )
    assert found["speedup"] is None
    assert found["suites"]["quick"]["arms"]["plain"]["decode_tok_s"] == 10.0
    assert speedup_lines(found) == []
    assert texts_line(found) == ""


def test_a_second_turn_is_a_prompt_of_its_own() -> None:
    legs = [
        leg(arm, rate, turn=turn)
        for turn in (0, 1)
        for arm, rate in (("draft", 20.0), ("plain", 10.0))
    ]
    found = summarize(legs, settings=SETTINGS, environment={}, complete=True)
    assert [row["prompt"] for row in found["prompts"]] == ["quick/0", "quick/0.2"]


def test_the_report_has_every_part_and_the_definitions() -> None:
    text = markdown(document(2.0, complete=False), plots=["speedup.svg"])
    for part in (
        "# splashpy bench tiny",
        "stopped before its end",
        "speed-up 2.00 (95 %: 2.00 to 2.00)",
        "![speedup](speedup.svg)",
        "| quick/1 | chat |",
        "a machine",
        "1 is plain decoding",
    ):
        assert part in text
    assert all(len(row) == len(HEADS) for row in rows(document(2.0)))


def test_drawings_are_sound_svg_with_one_bar_for_each_prompt() -> None:
    found = document(2.0)
    drawing = ElementTree.fromstring(speedup_bars(found))
    bars = [e for e in drawing.iter() if e.get("fill") == "#4c78a8"]
    assert len(bars) == len(found["prompts"]) == 2
    assert "60.00" in tau_bars(found)  # 120 of 200 passes committed two tokens
    empty = summarize([], settings=SETTINGS, environment=MACHINE, complete=False)
    ElementTree.fromstring(speedup_bars(empty))
