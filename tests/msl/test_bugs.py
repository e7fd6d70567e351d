# SPDX-License-Identifier: Apache-2.0
"""Every planted bug is reported, whatever the order of lanes."""

from __future__ import annotations

import re
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from msl.building import CompileError
from msl.cases import CASES
from msl.emulator import EmulatedKernel, Emulation
from msl.rewriting import UnsupportedError
from msl.seeded_bugs import BUGS

pytestmark = pytest.mark.usefixtures("compiler")


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_reported(name: str) -> None:
    bug = BUGS[name]
    for seed in range(3):
        report = bug.planted().launch(Emulation(seed=seed, step_limit=200_000))
        told = [f for f in report.findings if f.kind in bug.kinds]
        assert any(re.search(bug.says, f.text) for f in told), report.findings


def test_a_finding_names_the_line_of_the_kernel() -> None:
    report = BUGS["a reduction inside a branch"].planted().launch()
    (finding,) = report.findings
    assert finding.code.startswith("float sum = 0; if (i % 32 < 21)")
    assert report.kernel.text.splitlines()[finding.line - 1].strip() == finding.code


def test_a_race_names_both_lines(compiler: str) -> None:
    report = BUGS["a counter that is not atomic"].planted().launch()
    race = next(f for f in report.findings if f.kind == "race")
    assert race.code == "((device uint*)out)[lane] += n;"
    assert f"the earlier access is in line {race.line})" in race.text


def test_more_threads_than_the_pipeline_allows_are_refused() -> None:
    case = CASES["threadgroup_sum"]
    for limit in (1024, 832, 448, 384, 128):
        assert case.launch(Emulation(thread_limit=limit)).findings == []
    report = case.launch(Emulation(thread_limit=96))
    (finding,) = report.findings
    assert finding.kind == "launch-limit"
    assert "Thread group size (128) is greater than the maximum allowed" in finding.text


def test_more_buffers_than_a_kernel_has_are_refused() -> None:
    names = [f"x{i}" for i in range(31)]
    report = EmulatedKernel("many", names, ["out"], "out[0] = x0[0];").launch(
        inputs=[np.zeros(1, np.float32)] * 31,
        output_shapes=[(1,)],
        output_dtypes=[mx.float32],
        grid=(1, 1, 1),
        threadgroup=(1, 1, 1),
    )
    assert report.kinds == {"launch-limit"}
    assert "32 buffers" in report.findings[0].text


def test_an_empty_grid_is_refused() -> None:
    case = replace(CASES["elementwise"], grid=(0, 1, 1))
    assert case.launch().kinds == {"launch-limit"}


def test_an_output_may_be_allowed_to_have_holes() -> None:
    planted = BUGS["a hole in the output"].planted()
    assert planted.launch(Emulation(holes=frozenset({"out"}))).findings == []


def test_a_variable_that_is_never_set_does_not_compile() -> None:
    case = CASES["elementwise"].replaced("scaled[0] +", "unset +")
    case = case.replaced("uint i =", "float unset; uint i =")
    with pytest.raises(CompileError, match=r"unset. .*uninitialized"):
        case.launch()


def test_an_unknown_name_does_not_compile_and_names_the_line() -> None:
    case = CASES["elementwise"].replaced("{x[i],", "{xx[i],")
    with pytest.raises(CompileError, match=r"kernel\.metal:11:.*error: .*xx"):
        case.launch()


def test_a_half_times_a_bfloat_does_not_compile() -> None:
    case = CASES["elementwise"].replaced("scaled[0] +", "half(1) * bfloat(2) +")
    with pytest.raises(CompileError):
        case.launch()


def test_threadgroup_memory_declared_by_a_macro_is_refused() -> None:
    case = CASES["elementwise"].replaced(
        "uint i =", "\n#define TILE threadgroup float tile[8];\nTILE uint i ="
    )
    with pytest.raises(UnsupportedError, match="a macro declares threadgroup memory"):
        case.launch()
