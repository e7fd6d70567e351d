# SPDX-License-Identifier: Apache-2.0
"""Which places of a prompt are kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from splashpy.cache.plan import Marks, Policy, plan, rungs

POLICY = Policy()


def test_a_long_prompt_is_kept_where_others_share_it() -> None:
    marks = Marks(system=5000, unstable=4)
    found = plan(POLICY, cached=0, length=40_000, marks=marks, junction=30_000)
    assert found == {
        5000: "system",
        8192: "rung",
        16384: "rung",
        24576: "rung",
        30000: "junction",
        32768: "rung",
        39996: "stable",
    }


def test_what_is_restored_needs_no_place() -> None:
    marks = Marks(system=5000, unstable=4)
    found = plan(POLICY, cached=16384, length=20_000, marks=marks)
    assert found == {19996: "stable"}


def test_a_rung_right_before_the_stable_boundary_is_left_out() -> None:
    assert plan(POLICY, cached=0, length=9000, marks=Marks()) == {8999: "stable"}


def test_a_short_prompt_is_not_kept() -> None:
    assert plan(POLICY, cached=0, length=12, marks=Marks(system=8)) == {}


@given(
    length=st.integers(1, 300_000),
    cached=st.integers(0, 300_000),
    system=st.integers(0, 300_000),
    unstable=st.integers(0, 64),
    junction=st.integers(0, 300_000),
)
def test_every_place_leaves_a_token_to_read(
    length: int, cached: int, system: int, unstable: int, junction: int
) -> None:
    marks = Marks(system=system, unstable=unstable)
    found = plan(POLICY, cached=cached, length=length, marks=marks, junction=junction)
    assert all(cached < place < length for place in found)
    assert list(found) == sorted(found)
    assert sum(kind == "rung" for kind in found.values()) <= POLICY.rungs


@given(st.integers(0, 10_000_000), st.integers(0, 10_000_000))
def test_a_prompt_that_grows_only_thins_its_rungs(one: int, more: int) -> None:
    short, long = set(rungs(POLICY, one)), set(rungs(POLICY, one + more))
    assert len(long) <= POLICY.rungs
    assert {rung for rung in long if rung <= one} <= short
