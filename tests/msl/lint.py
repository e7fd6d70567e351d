# SPDX-License-Identifier: Apache-2.0
"""What can be seen in a kernel's text without compiling it.

These are faults that a C++ compiler lets pass and a device, or MLX, does not: words
that are not part of Metal, pointers and references without an address space, functions
that call themselves, threadgroup memory reserved outside of a kernel, and names that
MLX finds by searching the body, comments included, and turns into parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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
_SPACES = ("device", "constant", "thread", "threadgroup")
_DELIMITERS = ("(", ",", ";", "{", "}", ")")
_TYPES = frozenset(
    f"{name}{width}"
    for name in ("float", "half", "bfloat", "int", "uint", "short", "ushort", "char")
    for width in ("", "2", "3", "4")
) | {"bool", "uchar", "long", "ulong", "size_t", "bfloat16_t", "float16_t", "uint32_t"}
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
        remarks += [Remark(part, *found) for found in _of_declarations(part, text)]
    return sorted(remarks, key=lambda r: (r.part, r.line))


def _of_declarations(part: str, text: str) -> list[tuple[int, str]]:
    """Line and remark for what a declaration lacks or must not have."""
    seen = _visible(text)
    words = [token.text for token, _ in seen]
    types = _TYPES | {
        name
        for word, name in pairwise(words)
        if word in ("typename", "struct", "class")
    }
    found = []
    for at, (_, line) in enumerate(seen):
        if at and words[at] in ("*", "&") and _declares(words, at, types):
            if not set(_SPACES) & set(_since_delimiter(words, at)):
                what = "pointer" if words[at] == "*" else "reference"
                found.append((line, f"the {what} {words[at + 1]} has no address space"))
        elif part == "header" and _reserves(words, at):
            found.append((line, "threadgroup memory is reserved in a kernel only"))
    return found + _recursions(seen, types)


def _visible(text: str) -> list[tuple[Token, int]]:
    """Tokens a compiler sees, with their lines."""
    line, seen = 1, []
    for token in tokens(text):
        if not token.silent and token.kind != "directive":
            seen.append((token, line))
        line += token.text.count("\n")
    return seen


def _declares(words: Sequence[str], at: int, types: frozenset[str]) -> bool:
    """Whether the mark at ``at`` stands between a type and a name."""
    if at + 1 >= len(words) or not words[at + 1].isidentifier():
        return False
    return words[at - 1] in types or (words[at - 1] == ">" and "<" in words[:at])


def _since_delimiter(words: Sequence[str], at: int) -> list[str]:
    """Words of the declaration up to ``at``; commas inside of <> do not end it."""
    start, depth = at, 0
    while start > 0:
        word = words[start - 1]
        depth += (word == ">") - (word == "<")
        if depth <= 0 and word in _DELIMITERS:
            break
        start -= 1
    return list(words[start:at])


def _reserves(words: Sequence[str], at: int) -> bool:
    """Whether ``threadgroup`` begins a variable and no pointer or parameter."""
    if words[at] != "threadgroup" or not at or words[at - 1] not in (";", "{", "}"):
        return False
    rest = words[at + 1 : at + 12]
    end = next((i for i, word in enumerate(rest) if word in (";", "=", "(")), len(rest))
    return not {"*", "&"} & set(rest[:end])


def _recursions(
    seen: Sequence[tuple[Token, int]], types: frozenset[str]
) -> list[tuple[int, str]]:
    """Functions that name themselves in their own body."""
    found, depth, name, candidate = [], 0, "", ""
    for at, (token, line) in enumerate(seen):
        if token.text == "{":
            depth += 1
            name = candidate if depth == 1 else name
        elif token.text == "}":
            depth -= 1
        elif depth == 0 and token.text == "(" and at > 1:
            before = seen[at - 2][0].text
            is_function = before in types or before == "void" or before == ">"
            candidate = seen[at - 1][0].text if is_function else candidate
        elif depth > 0 and token.text == name and token.kind == "word":
            found.append((line, f"{name} calls itself"))
    return found


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
