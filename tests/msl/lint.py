# SPDX-License-Identifier: Apache-2.0
"""What can be seen in a kernel's text without compiling it.

These are faults that a C++ compiler lets pass and a device, or MLX, does not: words
that are not part of Metal, and names that MLX finds by searching the body, comments
included, and turns into parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msl.rewriting import Token, tokens
from msl.signature import SCALAR_ATTRIBUTES, VECTOR_ATTRIBUTES

NOT_METAL = {
    "double": "Metal has no double",
    "std": "Metal has no std",
    "virtual": "Metal has no virtual functions",
    "dynamic_cast": "Metal has no run-time types",
    "typeid": "Metal has no run-time types",
    "throw": "Metal has no exceptions",
    "try": "Metal has no exceptions",
    "new": "Metal has no heap",
    "delete": "Metal has no heap",
    "malloc": "Metal has no heap",
    "goto": "Metal has no goto",
    "thread_local": "Metal has no thread_local",
    "asm": "Metal has no inline assembly",
}
_ATTRIBUTES = (*VECTOR_ATTRIBUTES, *SCALAR_ATTRIBUTES)
_BEFORE_A_NAME = ("uint", "uint2", "uint3", "int", "ushort", "size_t", "auto", "const")


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing to change.

    Attributes:
        part: ``header`` or ``source``.
        line: of that part, from 1.
        text: what is wrong.
    """

    part: str
    line: int
    text: str


def lint(source: str, header: str = "", inputs: Sequence[str] = ()) -> list[Remark]:
    """Look through both parts of a kernel.

    Args:
        source: the body.
        header: text before the function.
        inputs: the input names.

    Returns:
        Remarks in the order of the text, the header's first.
    """
    layout = [f"{i}_{part}" for i in inputs for part in ("shape", "strides", "ndim")]
    remarks = []
    for part, text in (("header", header), ("source", source)):
        line, previous = 1, Token("other", ";")
        for token in tokens(text):
            reasons = _of_any_part(token, previous)
            if part == "source":
                reasons += _of_the_body(token, previous, layout)
            remarks += [Remark(part, line, reason) for reason in reasons]
            line += token.text.count("\n")
            if not token.silent:
                previous = token
    return remarks


def _of_any_part(token: Token, previous: Token) -> list[str]:
    reasons = []
    if not token.text.isascii():
        reasons.append("not ASCII: MLX hands the text over as ASCII")
    if token.kind == "word" and token.text in NOT_METAL:
        deleted = token.text == "delete" and previous.text == "="
        if not deleted:
            reasons.append(NOT_METAL[token.text])
    return reasons


def _of_the_body(token: Token, previous: Token, layout: Sequence[str]) -> list[str]:
    if token.kind == "comment":
        named = [name for name in (*_ATTRIBUTES, *layout) if name in token.text]
        return [f"the comment makes MLX add the parameter {name}" for name in named]
    if token.text == "static":
        return ["a kernel has no static variables"]
    declares = previous.text in _BEFORE_A_NAME and token.kind == "word"
    if declares and token.text in (*_ATTRIBUTES, *layout):
        return [f"a variable hides the parameter {token.text} that MLX adds"]
    return []
