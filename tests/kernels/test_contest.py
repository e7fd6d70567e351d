# SPDX-License-Identifier: Apache-2.0
"""Verdicts on kernels: right, fast, kept, switched off, and never an error."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest
import tiny
from kernels.suite import KERNELS
from msl.emulator import Emulation
from msl.stand_in import StandIn

from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.drafter import DraftSampling
from splashpy.engine import row_kernels
from splashpy.engine.row_kernels import choose_kernels, generation, verdicts_on
from splashpy.kernels import contests, gate, metal, roofline, verdicts
from splashpy.kernels.contest import (
    Contest,
    Switch,
    Verdict,
    filed,
    judge,
    rule,
    sustain,
)
from splashpy.models.kernel_shapes import draft_contests, target_contests

F32 = mx.float32


def clock(kernel: float, stock: float) -> Callable[[], float]:
    """A clock that gives every measurement of a kernel and of MLX its length."""
    now = itertools.accumulate(itertools.cycle([0.0, kernel, 0.0, stock]))
    return lambda: next(now)


def small() -> Contest:
    return contests.add_norm(4, 64, F32)


def every_contest() -> list[Contest]:
    """One of every operation, as small as it can be."""
    delta = roofline.Delta(
        layers=1, key_heads=1, value_heads=2, key_width=32, value_width=32, taps=4
    )
    heads = (2, 1, 64)
    return [
        contests.matrix(4, 16, 64, 4, 32, F32),
        contests.gated(4, 16, 64, 4, 32, F32),
        contests.attention(4, heads, 40, F32),
        contests.attention(4, heads, 40, F32, packed=True),
        contests.add_norm(4, 64, F32),
        *contests.convolutions(4, 64, 2, 16, F32),
        contests.choice(3, 300, 300, 16, 32),
        *contests.target_choices(4, 300),
        contests.accept(3),
        *contests.delta(4, delta, F32),
    ]


CONTESTS = {contest.operation: contest for contest in every_contest()}


@pytest.mark.parametrize("operation", CONTESTS)
def test_every_kernel_gives_what_mlx_gives(device: StandIn, operation: str) -> None:
    contest = replace(CONTESTS[operation], sets=_two_sets(CONTESTS[operation]))
    verdict = judge(contest, clock(1.0, 2.0))
    assert verdict.reason == ""
    assert (verdict.operation, verdict.state) == (operation, "on")
    assert set(device.names) == set(contest.kernels)
    # The operation asks the gate with the shape the verdict is filed under.
    asked = []
    with gate.ruled(lambda name, shape: asked.append((name, shape)) or False):
        contest.call(*contest.sets()[0])
    assert (operation, contest.key) in [
        (n, filed(s)) for n, s in asked if n == operation
    ]


def _two_sets(contest: Contest) -> Callable[[], list]:
    made = list(contest.sets()[:2])
    return lambda: made


def test_a_slower_kernel_is_left_alone(device: StandIn) -> None:
    verdict = judge(small(), clock(2.0, 1.0))
    assert verdict.state == "slower"
    assert verdict.reason == "2.00 x MLX's time"
    assert judge(small(), clock(1.0, 1.0)).state == "slower"


def test_a_kernel_that_differs_is_left_alone(device: StandIn) -> None:
    def wrong(x: mx.array, *rest: mx.array) -> list[mx.array]:
        kernel = gate.allows("add_rms_norm")
        return [x + 1 if kernel else x]

    verdict = judge(replace(small(), call=wrong), clock(1.0, 2.0))
    assert verdict.state == "differs"


def test_a_kernel_that_gives_no_numbers_differs(device: StandIn) -> None:
    def broken(x: mx.array, *rest: mx.array) -> list[mx.array]:
        return [x * mx.nan if gate.allows("add_rms_norm") else x]

    assert judge(replace(small(), call=broken), clock(1.0, 2.0)).state == "differs"


def test_a_kernel_that_fails_stops_nothing(device: StandIn) -> None:
    def failing(x: mx.array, *rest: mx.array) -> list[mx.array]:
        raise RuntimeError("[metal::Device] Unable to build\nmore")

    verdict = judge(replace(small(), call=failing), clock(1.0, 2.0))
    assert verdict.state == "failed"
    assert verdict.reason == "[metal::Device] Unable to build"


@pytest.mark.parametrize("limit", [832, 448, 384, 64])
def test_a_pipeline_with_a_limit_gets_smaller_threadgroups(
    device: StandIn, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(metal, "_limits", {})
    device.emulation = Emulation(thread_limit=limit)
    contest = contests.choice(3, 300, 300, 16, 32)
    verdict = judge(replace(contest, sets=_two_sets(contest)), clock(1.0, 2.0))
    assert verdict.state == "on"
    expected = min(limit, metal.MOST_THREADS) if limit < 512 else metal.MOST_THREADS
    assert metal.thread_limit("select_walk") == expected


def test_a_limit_is_known_at_the_next_start(
    device: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = contests.choice(3, 300, 300, 16, 32)
    contest = replace(made, sets=_two_sets(made))
    device.emulation = Emulation(thread_limit=96)
    monkeypatch.setattr(metal, "_limits", {})
    monkeypatch.setattr(row_kernels, "perf_counter", clock(1.0, 2.0))
    (verdict,) = verdicts_on([contest], tmp_path / "kernels.json", Switch())
    assert verdict.state == "on"
    monkeypatch.setattr(metal, "_limits", {})  # another process
    assert verdicts_on([contest], tmp_path / "kernels.json", Switch()) == [verdict]
    mx.eval(contest.call(*contest.sets()[0]), contest.also(*contest.sets()[0]))


def test_every_kernel_is_tried_before_it_runs() -> None:
    tried = {name for contest in CONTESTS.values() for name in contest.kernels}
    assert KERNELS.keys() - tried == {"select_look_ahead"}  # for those who ask for it


def test_a_stall_is_seen(device: StandIn) -> None:
    # A piece of 0.1 s, again and again; one takes 9 s.
    steps = iter([0.0, *[0.0, 0.0, 0.1] * 5, 0.0, 0.0, 9.0, *[0.0, 0.0, 0.1] * 99])
    now = itertools.accumulate(steps)
    contest = replace(small(), call=lambda x, *rest: [x])
    assert "once took 9.0 s" in sustain(contest, 10.0, lambda: next(now))


VERDICTS = [
    Verdict("qmm_rows", (8, 4096), "on"),
    Verdict("qmm_rows", (16, 4096), "slower", "1.20 x MLX's time"),
    Verdict("accept", (8,), "on"),
]


def test_what_won_runs_at_its_shape_and_fewer_rows() -> None:
    allows = rule(VERDICTS, Switch())
    assert allows("qmm_rows", (8, 4096))
    assert allows("qmm_rows", (5, 4096))
    assert not allows("qmm_rows", (4, 4096))
    assert not allows("qmm_rows", (9, 4096))
    assert not allows("qmm_rows", (8, 2048))
    assert allows("accept", (7,))


@pytest.mark.parametrize(
    ("text", "matrix", "accept"),
    [
        ("", True, True),
        ("auto", True, True),
        ("off", False, False),
        ("qmm_rows", True, False),
        ("-qmm_rows", False, True),
        (" -accept , -gated_rows", True, False),
    ],
)
def test_a_person_can_switch_kernels_off(text: str, matrix: bool, accept: bool) -> None:
    allows = rule(VERDICTS, Switch.parse(text))
    assert allows("qmm_rows", (8, 4096)) == matrix
    assert allows("accept", (7,)) == accept


def test_verdicts_are_kept_for_one_machine(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "kernels.json"
    verdicts.write(path, "one", VERDICTS)
    verdicts.write(path, "other", VERDICTS[:1])
    assert list(verdicts.read(path, "one").values()) == VERDICTS
    assert list(verdicts.read(path, "other").values()) == VERDICTS[:1]
    assert verdicts.read(path, "third") == {}
    # Another text of the kernels is another machine.
    assert "mlx " in verdicts.machine()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"format": 1, "machines": {"m": [1]}}']
)
def test_a_damaged_file_means_new_contests(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kernels.json"
    path.write_text(text)
    assert verdicts.read(path, "m") == {}
    verdicts.write(path, "m", VERDICTS)
    assert list(verdicts.read(path, "m").values()) == VERDICTS


def test_a_contest_is_run_once_per_machine(tmp_path: Path, device: StandIn) -> None:
    path = tmp_path / "kernels.json"
    (first,) = verdicts_on([small(), small()], path, Switch())
    launches = len(device.reports)
    assert launches
    assert verdicts_on([small()], path, Switch()) == [first]
    assert len(device.reports) == launches


def test_a_model_asks_for_the_shapes_of_its_layers() -> None:
    wanted = target_contests(tiny.target("qwen3_5"), (8,))
    assert {contest.operation for contest in wanted} == {
        *("add_rms_norm", "top_tokens", "target_topk", "accept"),
        *("attention_rows", "attention_rows_q8"),
        *("gated_delta_verify", "gated_delta_prework"),
    }


@pytest.mark.parametrize("frequent", [None, tuple(range(0, 200, 2))])
def test_a_drafter_asks_for_the_shapes_it_is_raced_at(
    frequent: tuple[int, ...] | None,
) -> None:
    network = tiny.drafter_network()
    network.config = replace(network.config, frequent_tokens=frequent)
    wanted = {(c.operation, c.key) for c in draft_contests(network, 8)}
    asked: set[tuple[str, gate.Shape]] = set()

    def note(operation: str, shape: gate.Shape) -> bool:
        asked.add((operation, filed(shape)))
        return False

    with gate.ruled(note):
        drafter = DFlash2Drafter(network, tiny.target(vocab_size=tiny.VOCAB + 4))
        state = drafter.new_state()
        drafter.observe(state, [1] * 9, mx.zeros((9, 128)), 0)
        mx.eval(drafter.propose(state, mx.array(3), 7, DraftSampling()).token_ids)
    for operation in ("candidate_selector", "conv_prepare", "conv_finish"):
        assert {a for a in asked if a[0] == operation} <= wanted


def test_without_metal_nothing_is_chosen() -> None:
    target = tiny.target()
    choose_kernels(target, None)
    assert not gate.allows("add_rms_norm", 8, 64)


def test_generations_of_gpus() -> None:
    names = ("applegpu_g13g", "applegpu_g16s", "applegpu_g17s", "", "other")
    assert [generation(name) for name in names] == [13, 16, 17, 0, 0]
