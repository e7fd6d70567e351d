# SPDX-License-Identifier: Apache-2.0
r"""Where the Markdown of a chat differs from CommonMark: nothing written is hidden.

CommonMark drops backslashes, resolves entities, and reads ``2*3*4`` as emphasis. In an
answer about mathematics or code that loses what was meant. These rules for markdown-it
keep such text as it is:

- ``\(a\)``, ``\[a\]``, ``$a$`` and ``$$a$$`` become one token, delimiters included;
- ``*`` between two letters or digits stays a star, ``__init__`` keeps its underscores;
- HTML, entities and reference definitions are ordinary text.

Every rule decides by what stands before the decision or on the same line, so text that
is appended later never changes a block that has ended.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

_INLINE_MATH = re.compile(
    r"\\\(.+?\\\)|\\\[.+?\\\]|\$\$[^$]+\$\$|(?<![\d\\])\$(?!\s)[^$\n]+?(?<!\s)\$(?!\d)",
    re.DOTALL,
)
_BRACKET_ESCAPE = re.compile(r"\\[()\[\]]")
_CODE_LIKE = re.compile(
    r"(?<=[A-Za-z0-9)\]])\*(?=[A-Za-z0-9(\[])|(?<!\w)__[a-z][a-z0-9_]*__(?!\w)"
)
_MATH_FENCES = {r"\[": r"\]", "$$": "$$"}


def chat_markdown() -> MarkdownIt:
    """A parser for answers: tables and strikethrough, no HTML, literal mathematics."""
    parser = MarkdownIt("commonmark", {"html": False})
    parser.enable(["table", "strikethrough"])
    parser.disable(["reference", "entity", "html_block", "html_inline"])
    parser.inline.ruler.before("escape", "math_inline", _math_inline)
    parser.inline.ruler.before("escape", "bracket_escape", _bracket_escape)
    parser.inline.ruler.before("emphasis", "code_like", _code_like)
    interrupts: RuleOptionsType = {"alt": ["paragraph", "blockquote", "list"]}
    parser.block.ruler.before("fence", "math_block", _math_block, interrupts)
    # Links are shown, not requested: an address stays the way it was written.
    setattr(parser, "normalizeLink", _as_written)  # noqa: B010 - typed as a method
    return parser


def _as_written(address: str) -> str:
    return address


def _math_inline(state: StateInline, silent: bool) -> bool:  # noqa: FBT001
    if state.src[state.pos] not in "\\$":
        return False
    match = _INLINE_MATH.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        state.push("math_inline", "", 0).content = match.group()
    state.pos = match.end()
    return True


def _bracket_escape(state: StateInline, silent: bool) -> bool:  # noqa: FBT001
    match = _BRACKET_ESCAPE.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        state.pending += match.group()
    state.pos = match.end()
    return True


def _code_like(state: StateInline, silent: bool) -> bool:  # noqa: FBT001
    match = _CODE_LIKE.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        state.pending += match.group()
    state.pos = match.end()
    return True


def _math_block(
    state: StateBlock,
    start_line: int,
    end_line: int,
    silent: bool,  # noqa: FBT001
) -> bool:
    """A display formula on lines of its own, up to its closer or a blank line."""
    if state.is_code_block(start_line):
        return False
    first = _line(state, start_line)
    closer = _MATH_FENCES.get(first[:2])
    if closer is None or (closer in first[2:] and not first.endswith(closer)):
        return False
    if silent:
        return True
    last = start_line
    text = first[2:]
    while closer not in text and _continues(state, last + 1, end_line):
        last += 1
        text = _line(state, last)
    state.line = last + 1
    token = state.push("math_block", "", 0)
    token.content = state.getLines(
        start_line, last + 1, state.blkIndent, keepLastLF=False
    )
    token.map = [start_line, state.line]
    return True


def _continues(state: StateBlock, line: int, end_line: int) -> bool:
    return (
        line < end_line
        and not state.isEmpty(line)
        and state.sCount[line] >= state.blkIndent
    )


def _line(state: StateBlock, line: int) -> str:
    start = state.bMarks[line] + state.tShift[line]
    return state.src[start : state.eMarks[line]].rstrip()
