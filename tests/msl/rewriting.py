# SPDX-License-Identifier: Apache-2.0
"""Turn a kernel's text into C++ that the shim headers make compile.

Two constructs need more than a macro. A literal like ``1.0`` is a float in Metal: it
gets the suffix ``f``. And a variable may lie in threadgroup memory:
``threadgroup float tile[8][9];`` becomes ``EMU_THREADGROUP(tile, float [8][9])``, a
reference into storage that all lanes of the threadgroup get from the runtime. Pointers
and references to threadgroup memory stay as they are. Line breaks are kept, so that
line numbers of the result are those of the kernel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from msl.signature import SCALAR_ATTRIBUTES, VECTOR_ATTRIBUTES, Kernel

_TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<directive>^[ \t]*\#(?:[^\n\\]|\\.)*)
  | (?P<literal>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>0[xX][\da-fA-F.]+(?:[pP][+-]?\d+)?\w*|\.?\d(?:[eE][+-]?\d|[\w.])*)
  | (?P<space>\n|[^\S\n]+)
  | (?P<other>::|.)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_DECLARING_DIRECTIVE = re.compile(
    r"^\s*\#\s*define\b.*\bthreadgroup\s+[\w:<>, ]*[\w>]\s+\w+\s*(?:\[|;|\\|$)",
    re.DOTALL,
)
_DEFINITION = re.compile(r"\s*#\s*define\b")
_UNSUFFIXED = re.compile(r"(?=.*[.eE])(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_OPENING = {"(": ")", "[": "]", "<": ">", "{": "}"}


class UnsupportedError(Exception):
    """The kernel uses a construct that the emulator does not know."""


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text.

    Attributes:
        kind: name of the group of the tokenizer that matched.
        text: the piece itself.
    """

    kind: str
    text: str

    @property
    def silent(self) -> bool:
        """Whether the compiler does not see it."""
        return self.kind in ("comment", "space")


def tokens(text: str) -> list[Token]:
    """Split ``text`` without losing a character."""
    return [Token(m.lastgroup or "", m.group()) for m in _TOKEN.finditer(text)]


def rewrite(text: str) -> str:
    """Replace declarations of threadgroup variables and suffix float literals.

    Raises:
        UnsupportedError: a macro declares one, or the declaration cannot be read.
    """
    stream = tokens(text)
    out: list[str] = []
    at, before = 0, ";"
    while at < len(stream):
        token = stream[at]
        if token.kind == "directive" and _DECLARING_DIRECTIVE.search(token.text):
            raise UnsupportedError(f"a macro declares threadgroup memory: {token.text}")
        starts = token.text == "threadgroup" and before in (";", "{", "}", ")")
        declaration = _declaration(stream, at) if starts else None
        if declaration is None:
            out.append(_with_suffix(token))
            at += 1
        else:
            replacement, at = declaration
            out.append(replacement)
            token = Token("other", ";")
        if not token.silent:
            before = ";" if token.kind == "directive" else token.text
    return "".join(out)


def _with_suffix(token: Token) -> str:
    if token.kind == "directive" and _DEFINITION.match(token.text):
        at = token.text.index("#") + 1
        return token.text[:at] + "".join(map(_with_suffix, tokens(token.text[at:])))
    if token.kind == "number" and _UNSUFFIXED.fullmatch(token.text):
        return f"{token.text}f"
    return token.text


def _declaration(stream: list[Token], start: int) -> tuple[str, int] | None:
    """Read one declaration; None where a pointer or reference is meant."""
    end = start
    while end < len(stream) and stream[end].text != ";":
        end += 1
    body = [t for t in stream[start + 1 : end] if not t.silent]
    at = _after_type(body)
    if at >= len(body) or body[at].kind != "word":
        return None
    kind = " ".join(t.text for t in body[:at])
    made = []
    for declarator in _split(body[at:]):
        if declarator[0].kind != "word" or any(t.text == "=" for t in declarator):
            text = "".join(t.text for t in stream[start:end])
            raise UnsupportedError(f"cannot read the declaration: {text}")
        extent = " ".join(t.text for t in declarator[1:])
        made.append(f"EMU_THREADGROUP({declarator[0].text}, {kind} {extent})")
    breaks = sum(t.text.count("\n") for t in stream[start:end])
    return " ".join(made) + "\n" * breaks, end + 1


def _after_type(body: list[Token]) -> int:
    """Index after ``const a::b<c>``."""
    at = 0
    while at < len(body) and body[at].text in ("const", "volatile", "unsigned"):
        at += 1
    at += 1
    while at < len(body):
        if body[at].text == "::":
            at += 2
        elif body[at].text == "<":
            at = _closing(body, at) + 1
        else:
            break
    return at


def _closing(body: list[Token], at: int) -> int:
    opening, depth = body[at].text, 0
    closing = _OPENING[opening]
    for i in range(at, len(body)):
        depth += (body[i].text == opening) - (body[i].text == closing)
        if depth == 0:
            return i
    raise UnsupportedError(f"'{opening}' is never closed")


def _split(body: list[Token]) -> list[list[Token]]:
    """Declarators, at the commas outside of every bracket."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in body:
        depth += (token.text in "([{") - (token.text in ")]}")
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def translation_unit(kernel: Kernel) -> str:
    """The C++ text of a kernel, with the one function the runtime calls.

    Lines are numbered as in the text MLX prints. Its last line, the explicit
    instantiation, is left out: the call instantiates the kernel.
    """
    arguments = []
    for i, buffer in enumerate(kernel.buffers):
        constant = "const " if buffer.declaration.startswith("const") else ""
        pointer = f"static_cast<{constant}{buffer.type}*>(buffers[{i}])"
        arguments.append(f"*{pointer}" if buffer.reference else pointer)
    arguments += [_attribute(name) for name in kernel.attributes]
    call = ",\n    ".join(arguments)
    return (
        f'#include "prelude.h"\n#line 1 "kernel.metal"\n{rewrite(kernel.definition)}'
        '#line 1 "entry"\n'
        '__attribute__((no_sanitize("thread"))) void emu_kernel(\n'
        "    void* const* buffers, const EmuIds* ids) {\n"
        f"  {kernel.instance}(\n    {call});\n}}\n"
    )


def _attribute(name: str) -> str:
    if name in VECTOR_ATTRIBUTES:
        at = f"ids->vectors[{VECTOR_ATTRIBUTES.index(name)}]"
        return f"uint3({at}[0], {at}[1], {at}[2])"
    return f"ids->scalars[{SCALAR_ATTRIBUTES.index(name)}]"
