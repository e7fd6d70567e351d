# SPDX-License-Identifier: Apache-2.0
"""The text MLX compiles for a kernel, generated from the same call.

MLX writes the signature of a kernel itself: from the inputs' types and sizes, from the
template values, and from which words occur in the body. These rules are repeated here
so that a kernel can be compiled without MLX's help; ``test_signature.py`` holds the
result to the text that ``mx.export_function`` makes MLX print.
Source of the rules: mlx 0.32, ``mlx/backend/common/metal_kernel.cpp``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

SMALLEST_DEVICE_INPUT = 8
"""Inputs with fewer elements are bound as ``constant``."""

VECTOR_ATTRIBUTES = (
    "dispatch_threads_per_threadgroup",
    "grid_origin",
    "grid_size",
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threadgroups_per_grid",
    "threads_per_grid",
    "threads_per_threadgroup",
)
SCALAR_ATTRIBUTES = (
    "dispatch_quadgroups_per_threadgroup",
    "dispatch_simdgroups_per_threadgroup",
    "quadgroup_index_in_threadgroup",
    "quadgroups_per_threadgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "thread_execution_width",
    "thread_index_in_quadgroup",
    "thread_index_in_simdgroup",
    "thread_index_in_threadgroup",
    "threads_per_simdgroup",
)

TYPE_NAMES = {
    mx.bool_: "bool",
    mx.uint8: "uint8_t",
    mx.uint16: "uint16_t",
    mx.uint32: "uint32_t",
    mx.uint64: "uint64_t",
    mx.int8: "int8_t",
    mx.int16: "int16_t",
    mx.int32: "int32_t",
    mx.int64: "int64_t",
    mx.float16: "float16_t",
    mx.bfloat16: "bfloat16_t",
    mx.float32: "float",
    mx.complex64: "complex64_t",
}

TemplateValue = bool | int | mx.Dtype


@dataclass(frozen=True, slots=True)
class Input:
    """What the signature depends on in one input.

    Attributes:
        name: parameter name.
        dtype: element type.
        shape: its length decides between pointer and reference, its product between
            ``device`` and ``constant``.
    """

    name: str
    dtype: mx.Dtype
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        count = 1
        for n in self.shape:
            count *= n
        return count


@dataclass(frozen=True, slots=True)
class Parameter:
    """One buffer of the generated signature.

    Attributes:
        name: parameter name.
        type: C++ element type, without address space.
        declaration: text before the name, such as ``const device float*``.
        of: input or output it belongs to.
        part: ``data``, ``shape``, ``strides`` or ``ndim``.
    """

    name: str
    type: str
    declaration: str
    of: str
    part: str = "data"

    @property
    def reference(self) -> bool:
        """Whether the kernel takes it by reference."""
        return self.declaration.endswith("&")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's generated text and what is needed to call it.

    Attributes:
        function: name of the function.
        instance: the function with its template values, as an expression.
        buffers: parameters in buffer order.
        attributes: thread attributes, in the order of the parameters after them.
        definition: header, signature and body.
        instantiation: MLX's explicit instantiation; empty without a template.
    """

    function: str
    instance: str
    buffers: tuple[Parameter, ...]
    attributes: tuple[str, ...]
    definition: str
    instantiation: str

    @property
    def text(self) -> str:
        """The whole text, as MLX prints it."""
        return self.definition + self.instantiation


def generate(
    name: str,
    inputs: Sequence[Input],
    outputs: Sequence[tuple[str, mx.Dtype]],
    source: str,
    *,
    header: str = "",
    template: Sequence[tuple[str, TemplateValue]] = (),
    atomic_outputs: bool = False,
) -> Kernel:
    """Write the kernel that MLX would compile.

    Args:
        name: the kernel's name, as given to ``mx.fast.metal_kernel``.
        inputs: in the order of the call.
        outputs: (name, dtype) in the order of the call.
        source: the body.
        header: text before the function.
        template: (parameter, value) in order.
        atomic_outputs: outputs are pointers to atomics.

    Returns:
        The text with its pieces.
    """
    values = [_template_text(value) for _, value in template]
    function = _function_name(name, values, inputs, outputs)
    buffers = _buffers(inputs, outputs, source, atomic_outputs)
    named = (*VECTOR_ATTRIBUTES, *SCALAR_ATTRIBUTES)
    attributes = sorted(a for a in named if a in source)
    lines = [
        f"  {p.declaration} {p.name} [[buffer({i})]]" for i, p in enumerate(buffers)
    ]
    lines += [f"  {_attribute_type(a)} {a} [[{a}]]" for a in attributes]
    instance = f"{function}<{', '.join(values)}>" if template else function
    instantiation = (
        f'\ntemplate [[host_name("{function}")]] [[kernel]] '
        f"decltype({instance}) {instance};\n"
        if template
        else ""
    )
    parameters = ",\n".join(lines)
    definition = (
        f"{header}{_template_line(template)}[[kernel]] void {function}(\n"
        f"{parameters}) {{\n{source}\n}}\n"
    )
    return Kernel(
        function,
        instance,
        tuple(buffers),
        tuple(attributes),
        definition,
        instantiation,
    )


def _attribute_type(attribute: str) -> str:
    return "uint3" if attribute in VECTOR_ATTRIBUTES else "uint"


def _template_text(value: TemplateValue) -> str:
    if isinstance(value, mx.Dtype):
        return TYPE_NAMES[value]
    return str(int(value))


def _template_line(template: Sequence[tuple[str, TemplateValue]]) -> str:
    if not template:
        return ""
    kinds = []
    for name, value in template:
        if isinstance(value, mx.Dtype):
            kinds.append(f"typename {name}")
        else:
            kinds.append(f"{'bool' if isinstance(value, bool) else 'int'} {name}")
    return f"template <{', '.join(kinds)}>\n"


def _function_name(
    name: str,
    values: Sequence[str],
    inputs: Sequence[Input],
    outputs: Sequence[tuple[str, mx.Dtype]],
) -> str:
    parts = [f"custom_kernel_{name}"]
    if values:
        parts.append(re.sub(r"[<-]|, ", "_", f"<{', '.join(values)}"))
    for array in inputs:
        small = array.elements < SMALLEST_DEVICE_INPUT
        suffix = "s" if not array.shape else "c" if small else ""
        parts.append(TYPE_NAMES[array.dtype] + suffix)
    parts += [TYPE_NAMES[dtype] for _, dtype in outputs]
    return "_".join(parts)


def _buffers(
    inputs: Sequence[Input],
    outputs: Sequence[tuple[str, mx.Dtype]],
    source: str,
    atomic_outputs: bool,
) -> list[Parameter]:
    buffers = []
    for array in inputs:
        kind = TYPE_NAMES[array.dtype]
        small = array.elements < SMALLEST_DEVICE_INPUT
        space = "constant" if small else "device"
        mark = "*" if array.shape else "&"
        buffers.append(
            Parameter(array.name, kind, f"const {space} {kind}{mark}", array.name)
        )
        if array.shape:
            buffers += _layout_of(array.name, source)
    for name, dtype in outputs:
        kind = TYPE_NAMES[dtype]
        kind = f"atomic<{kind}>" if atomic_outputs else kind
        buffers.append(Parameter(name, kind, f"device {kind}*", name))
    return buffers


def _layout_of(name: str, source: str) -> list[Parameter]:
    """The shape, strides and rank of an input, where the body names them."""
    parts = (("shape", "int", "*"), ("strides", "int64_t", "*"), ("ndim", "int", "&"))
    return [
        Parameter(f"{name}_{part}", kind, f"const constant {kind}{mark}", name, part)
        for part, kind, mark in parts
        if f"{name}_{part}" in source
    ]
