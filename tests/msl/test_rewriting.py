# SPDX-License-Identifier: Apache-2.0
"""Threadgroup variables become storage of the runtime; nothing else changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msl.rewriting import UnsupportedError, rewrite, tokens

DECLARATIONS = {
    "threadgroup float total;": "EMU_THREADGROUP(total, float )",
    "threadgroup half tile[8][9];": "EMU_THREADGROUP(tile, half [ 8 ] [ 9 ])",
    "threadgroup float4 a[2], b;": (
        "EMU_THREADGROUP(a, float4 [ 2 ]) EMU_THREADGROUP(b, float4 )"
    ),
    "threadgroup vec<T, 4> v[N / 32];": (
        "EMU_THREADGROUP(v, vec < T , 4 > [ N / 32 ])"
    ),
    "threadgroup metal::atomic<uint> n[f(1, 2)];": (
        "EMU_THREADGROUP(n, metal :: atomic < uint > [ f ( 1 , 2 ) ])"
    ),
    "threadgroup unsigned int n[4];": "EMU_THREADGROUP(n, unsigned int [ 4 ])",
}
UNTOUCHED = (
    "threadgroup float* p = tile;",
    "threadgroup const float& first = tile[0];",
    "void f(threadgroup float* p, device float* q);",
    "x = *(threadgroup float4*)p;",
    "threadgroup_barrier(mem_flags::mem_threadgroup);",
    "// threadgroup float tile[8];\n",
    '#include "threadgroup float tile[8];"\n',
)


@pytest.mark.parametrize("text", DECLARATIONS)
def test_a_declaration_becomes_storage(text: str) -> None:
    assert rewrite(text) == DECLARATIONS[text]


@pytest.mark.parametrize("text", UNTOUCHED)
def test_pointers_parameters_and_comments_stay(text: str) -> None:
    assert rewrite(text) == text


def test_a_float_literal_gets_a_suffix() -> None:
    text = "a = 1.0 + .5 + 2. + 1e-6 + 3.0e+2; // 1.0\n#define EPS 1e-5\n"
    wanted = "a = 1.0f + .5f + 2.f + 1e-6f + 3.0e+2f; // 1.0\n#define EPS 1e-5f\n"
    assert rewrite(text) == wanted


@pytest.mark.parametrize("text", ["1", "0x1e5", "1.0f", "2h", "7u", "0x1p-3f", "v.e1"])
def test_other_numbers_keep_theirs(text: str) -> None:
    assert rewrite(text) == text


def test_a_declaration_over_lines_keeps_their_number() -> None:
    text = "int a;\nthreadgroup float\n  tile[8],\n  more;\nint b;\n"
    assert rewrite(text).splitlines()[4] == "int b;"


@pytest.mark.parametrize(
    "text",
    [
        "#define T threadgroup float t[4];",
        "#define T \\\n  threadgroup float t[4];",
        "int a;\n  # define T threadgroup float t",
        "threadgroup float t = 1;",
    ],
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedError):
        rewrite(text)


@given(st.text())
def test_the_tokens_are_the_whole_text(text: str) -> None:
    assert "".join(token.text for token in tokens(text)) == text
