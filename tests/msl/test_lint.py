# SPDX-License-Identifier: Apache-2.0
"""Faults of a kernel's text are found; correct kernels have none."""

from __future__ import annotations

import pytest
from msl.cases import CASES
from msl.lint import Remark, lint

FAULTS = {
    "double total = 0;": "Metal has no double",
    "thread int* p = new int[4];": "Metal has no heap",
    "float y = std::exp(1.0f);": "Metal has no std",
    "static float seen;": "a kernel has no static variables",
    "// one lane per grid_size\n": "the comment makes MLX add the parameter grid_size",
    "/* uses x_shape */": "the comment makes MLX add the parameter x_shape",
    "uint x_ndim = 2;": "a variable hides the parameter x_ndim that MLX adds",
    "const uint3 grid_size = 3;": (
        "a variable hides the parameter grid_size that MLX adds"
    ),
    "// Größe\n": "not ASCII: MLX hands the text over as ASCII",
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_fault_is_named_with_its_line(text: str) -> None:
    body = f"uint i = thread_position_in_grid.x;\n{text}"
    assert lint(body, "", ["x"]) == [Remark("source", 2, FAULTS[text])]


def test_the_header_may_name_attributes_but_not_use_double() -> None:
    header = "// for thread_position_in_grid\nvoid f(uint grid_size);\ndouble g();\n"
    assert lint("f(1);", header, ["x"]) == [Remark("header", 3, "Metal has no double")]


@pytest.mark.parametrize("name", CASES)
def test_a_correct_kernel_has_no_faults(name: str) -> None:
    case = CASES[name]
    assert lint(case.source, case.header, list(case.inputs)) == []


HEADERS = {
    "inline float f(float* x) { return x[0]; }": "the pointer x has no address space",
    "template <typename T> inline void f(T& x) {}": (
        "the reference x has no address space"
    ),
    "inline void f(device float* x) { float* y = x; }": (
        "the pointer y has no address space"
    ),
    "struct S { int a; }; inline int f(const S& s) { return s.a; }": (
        "the reference s has no address space"
    ),
    "inline void f(threadgroup float* x) { threadgroup float y[8]; }": (
        "threadgroup memory is reserved in a kernel only"
    ),
    "inline int f(int n) { return n ? f(n - 1) : 0; }": "f calls itself",
}


@pytest.mark.parametrize("header", HEADERS)
def test_a_declaration_that_a_device_refuses_is_seen(header: str) -> None:
    (remark,) = lint("", header)
    assert remark.text == HEADERS[header]


def test_products_and_declarations_with_an_address_space_are_fine() -> None:
    header = """
    template <typename X, typename T>
    inline float f(X x, const device T* y, thread const float& z, uint n) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      const float a = float(x[0]) * z, b = n & 1;
      return a * b;
    }
    inline float g(threadgroup const float* t, uint i) { return t[i] * float(i); }
    """
    assert lint("", header) == []
