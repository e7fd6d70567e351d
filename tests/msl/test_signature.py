# SPDX-License-Identifier: Apache-2.0
"""The generated text equals the text MLX prints when a function is exported.

Exporting works without a GPU: the call is recorded, and ``verbose=True`` prints what a
Mac would compile.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from msl.signature import (
    SCALAR_ATTRIBUTES,
    TYPE_NAMES,
    VECTOR_ATTRIBUTES,
    Input,
    generate,
)

EVERY_ATTRIBUTE = " ".join((*VECTOR_ATTRIBUTES, *SCALAR_ATTRIBUTES))

CALLS: dict[str, dict[str, Any]] = {
    "plain": {"source": "out[0] = x[0];", "inputs": {"x": mx.zeros((4, 64))}},
    "a template of every kind": {
        "source": "T v = N;",
        "inputs": {"x": mx.zeros((8,), mx.bfloat16)},
        "template": [("T", mx.bfloat16), ("N", -4), ("M", 7), ("B", True)],
    },
    "small inputs and a scalar": {
        "source": "out[0] = a[0] + b[0] + c;",
        "inputs": {
            "a": mx.zeros((7,)),
            "b": mx.zeros((2, 4), mx.int64),
            "c": mx.array(3),
            "d": mx.array(True),
        },
    },
    "shapes, strides and ranks": {
        "source": "x_shape x_ndim y_strides s_shape s_ndim",
        "inputs": {
            "x": mx.zeros((4, 64)),
            "y": mx.zeros((2,), mx.uint8),
            "s": mx.array(1.5),
        },
    },
    "a name inside a comment counts": {
        "source": "/* grid_size, x_strides */ out[0] = 1;",
        "inputs": {"x": mx.zeros((4, 64))},
    },
    "every attribute": {
        "source": EVERY_ATTRIBUTE,
        "inputs": {"x": mx.zeros((4, 64))},
    },
    "no attribute from the header": {
        "source": "out[0] = f(x[0]);",
        "header": "// grid_size\n#include <metal_stdlib>\ninline float f(float x);\n",
        "inputs": {"x": mx.zeros((4, 64))},
        "template": [("N", 0)],
    },
    "atomic outputs": {
        "source": "uint i = thread_position_in_grid.x;",
        "inputs": {"x": mx.zeros((9,), mx.uint32)},
        "output_dtypes": [mx.uint32],
        "atomic_outputs": True,
    },
    "two outputs": {
        "source": "out[0] = x[0];",
        "inputs": {"x": mx.zeros((9,), mx.int8)},
        "output_dtypes": [mx.float16, mx.int32],
    },
}
CALLS |= {
    f"type {name}": {
        "source": "out[0] = x[0];",
        "inputs": {"x": mx.zeros((9,), dtype), "y": mx.zeros((1,), dtype)},
        "output_dtypes": [dtype],
        "template": [("T", dtype)],
    }
    for dtype, name in TYPE_NAMES.items()
}


def _printed_by_mlx(
    call: dict[str, Any], folder: Path, capfd: pytest.CaptureFixture[str]
) -> str:
    dtypes = call.get("output_dtypes", [mx.float32])
    kernel = mx.fast.metal_kernel(
        name="k",
        input_names=list(call["inputs"]),
        output_names=["out", "more"][: len(dtypes)],
        source=call["source"],
        header=call.get("header", ""),
        atomic_outputs=call.get("atomic_outputs", False),
    )

    def launch(*arrays: mx.array) -> list[mx.array]:
        return kernel(
            inputs=list(arrays),
            template=call.get("template"),
            grid=(32, 1, 1),
            threadgroup=(32, 1, 1),
            output_shapes=[(4,)] * len(dtypes),
            output_dtypes=dtypes,
            verbose=True,
        )

    capfd.readouterr()
    mx.export_function(str(folder / "k.mlxfn"), launch, *call["inputs"].values())
    printed = capfd.readouterr().out
    begin = printed.index("```\n") + 4
    return printed[begin : printed.rindex("\n```")]


@pytest.mark.skipif(mx.metal.is_available(), reason="a Mac would run the kernels")
@pytest.mark.parametrize("name", CALLS)
def test_the_text_is_what_mlx_prints(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    call = CALLS[name]
    dtypes = call.get("output_dtypes", [mx.float32])
    made = generate(
        "k",
        [Input(n, a.dtype, tuple(a.shape)) for n, a in call["inputs"].items()],
        list(zip(["out", "more"], dtypes, strict=False)),
        call["source"],
        header=call.get("header", ""),
        template=call.get("template", ()),
        atomic_outputs=call.get("atomic_outputs", False),
    )
    assert made.text == _printed_by_mlx(call, tmp_path, capfd)
