# SPDX-License-Identifier: Apache-2.0
"""The text of the kernels, without compiling it."""

from __future__ import annotations

import pytest
from msl.lint import lint

from splashpy.kernels import (
    accept,
    add_rms_norm,
    attention_rows,
    candidate_selector,
    dynamic_causal_conv,
    gated_delta,
    metal,
    qmm_rows,
    target_topk,
    top_tokens,
)

ROOMS = (
    *(accept, add_rms_norm, attention_rows, candidate_selector, dynamic_causal_conv),
    *(gated_delta, qmm_rows, target_topk, top_tokens),
)
KERNELS = {
    kernel.name: kernel
    for module in ROOMS
    for kernel in vars(module).values()
    if isinstance(kernel, metal.Kernel)
}


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


def test_kernels_are_built_once() -> None:
    kernel = KERNELS["add_rms_norm"]
    assert metal.build(kernel) is metal.build(kernel)


def test_a_refused_threadgroup_names_its_limit() -> None:
    message = "Thread group size (1024) is greater than the maximum allowed threads "
    assert (
        metal.refused_threads(RuntimeError(message + "per threadgroup (832).")) == 832
    )
    assert metal.refused_threads(RuntimeError("something else")) == 0
