# SPDX-License-Identifier: Apache-2.0
"""Every kernel compiled by Apple's compiler and run, where there is a Metal GPU."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import pytest
from kernels.suite import all_contests, in_float32

from splashpy.kernels import gate, metal
from splashpy.kernels.contest import judge

if not metal.use_metal():
    pytest.skip("needs a Metal GPU", allow_module_level=True)

pytestmark = pytest.mark.metal

CONTESTS = all_contests([mx.float32, mx.bfloat16, mx.float16])
NAMES = [f"{c.operation} {c.shape}" for c, _ in CONTESTS]
ALLOWED = {mx.float32: 1e-4, mx.float16: 4e-3, mx.bfloat16: 2e-2}


@pytest.mark.parametrize("index", range(len(CONTESTS)), ids=NAMES)
def test_a_kernel_gives_what_mlx_gives_in_float32(index: int) -> None:
    contest, dtype = CONTESTS[index]
    (arguments, *_) = contest.sets()
    # A pipeline that refuses the threadgroup names its limit; the contest learns it.
    learned = replace(contest, sets=lambda: [arguments, arguments])
    assert judge(learned, _Clock()).state in ("on", "slower")
    with gate.ruled(lambda name, shape: True):
        ours = contest.call(*arguments)
        mx.eval(ours)
    with gate.ruled(None):
        theirs = contest.call(*(in_float32(part) for part in arguments))
    for got, wanted in zip(ours, theirs, strict=True):
        if mx.issubdtype(got.dtype, mx.floating):
            gap = mx.abs(got.astype(mx.float32) - wanted).max()
            assert (gap / mx.abs(wanted).max()).item() <= ALLOWED[dtype]
        else:
            assert mx.array_equal(got, wanted)


class _Clock:
    """Every reading is a second later: nothing is timed."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 1.0
        return self._now
