# SPDX-License-Identifier: Apache-2.0
"""The text of the kernels, without compiling it."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest
from kernels.suite import KERNELS, all_contests
from msl import building
from msl.lint import lint
from msl.stand_in import emulated

from splashpy.kernels import metal


def test_every_operation_has_kernels() -> None:
    assert len(KERNELS) == 20
    used = {name for kernel in KERNELS.values() for name in kernel.files}
    assert used | {n for n, k in KERNELS.items() if not k.files} == set(metal.sources())


@pytest.mark.parametrize("name", KERNELS)
def test_nothing_is_in_the_text_that_a_device_or_mlx_trips_over(name: str) -> None:
    kernel = KERNELS[name]
    assert lint(kernel.body, kernel.header, kernel.inputs) == []


@pytest.mark.parametrize("name", metal.sources())
def test_a_file_says_what_it_computes_and_where_its_reference_is(name: str) -> None:
    text = metal.source(name)
    lines = text.splitlines()
    assert lines[0] == "// SPDX-License-Identifier: Apache-2.0"
    assert lines[1].startswith("// ")
    assert max(map(len, lines)) <= 88
    shared = ("threadgroup_sum", "matrix_tile")
    assert name in shared or f"splashpy/kernels/{name}.py" in text


@pytest.mark.skipif(mx.metal.is_available(), reason="a Mac would run the kernels")
def test_what_is_emulated_is_what_mlx_would_compile(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if building.missing():
        pytest.skip(building.missing())
    with emulated() as device:
        for contest, _ in all_contests([mx.bfloat16]):
            contest.call(*contest.sets()[0])
    seen = set()
    for (made, call), report in zip(device.calls, device.reports, strict=True):
        if made["name"] in seen:
            continue
        seen.add(made["name"])
        arrays = [mx.array(value) for value in call["inputs"]]
        rest = {name: value for name, value in call.items() if name != "inputs"}
        kernel = mx.fast.metal_kernel(**made)
        capfd.readouterr()
        mx.export_function(
            str(tmp_path / "kernel.mlxfn"),
            lambda *inputs, k=kernel, r=rest: k(inputs=list(inputs), verbose=True, **r),
            *arrays,
        )
        printed = capfd.readouterr().out
        begin = printed.index("```\n") + 4
        assert report.kernel.text == printed[begin : printed.rindex("\n```")]
    assert len(seen) >= 15


def test_kernels_are_built_once() -> None:
    kernel = KERNELS["add_rms_norm"]
    assert metal.build(kernel) is metal.build(kernel)


def test_a_refused_threadgroup_names_its_limit() -> None:
    message = "Thread group size (1024) is greater than the maximum allowed threads "
    assert (
        metal.refused_threads(RuntimeError(message + "per threadgroup (832).")) == 832
    )
    assert metal.refused_threads(RuntimeError("something else")) == 0
