# SPDX-License-Identifier: Apache-2.0
"""Markdown to blocks, without losing a word.

``parse`` returns groups: one per top-level block, and one per item of a top-level
list, because an item that is followed by another cannot change any more. After each
group its words are compared with those of its source; where the parser dropped some (a
table row with too many cells, nesting beyond its limit), the source is shown instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from markdown_it.tree import SyntaxTreeNode
from textual.content import Content, Span

from splashpy.chat.blocks import (
    BLANK,
    EMPTY,
    TAB_CELLS,
    Block,
    TableBlock,
    TextBlock,
)
from splashpy.chat.code import code_blocks
from splashpy.chat.literals import chat_markdown
from splashpy.chat.theme import FAINT

CODE = "$text-accent"
MATH = "italic $text-secondary"
_QUOTE_BAR = Content.styled("▎ ", FAINT)
_CODE_BAR = Content.styled("┃ ", FAINT)
_HEADINGS = {"h1": "bold underline $text-primary", "h2": "bold $text-primary"}
_INLINE_STYLES = {
    "strong": "bold",
    "em": "italic",
    "s": "strike",
    "link": "underline",
    "image": "underline",
    "code_inline": CODE,
    "math_inline": MATH,
}
_BULLETS = "•◦▪"
_TASK = re.compile(r"\[([ xX])\] ")
_NO_WORD = re.compile(r"[\W_]+")
_PARSER = chat_markdown()


@dataclass(frozen=True, slots=True)
class Group:
    """What one top-level block, or one list item, looks like.

    Attributes:
        line: first source line of it.
        blocks: never empty.
        glued: it is a further item of the list before it.
    """

    line: int
    blocks: tuple[Block, ...]
    glued: bool


def parse(text: str, *, gap: bool = False) -> list[Group]:
    """Groups of a sanitized Markdown text.

    Args:
        text: the source.
        gap: an empty row stands above the first group.
    """
    source = text.split("\n")
    groups: list[Group] = []
    done = 0
    for node, glued in _groups_of(SyntaxTreeNode(_PARSER.parse(text))):
        start, end = node.map or (done, done)
        groups += _plain(source[done:start], done, gap=gap or bool(groups))
        spaced = not glued if groups else gap
        groups += _group(node, source[start:end], gap=spaced, glued=glued)
        done = max(end, done)
    return groups + _plain(source[done:], done, gap=gap or bool(groups))


def _groups_of(root: SyntaxTreeNode) -> Iterator[tuple[SyntaxTreeNode, bool]]:
    for node in root.children:
        if node.type in ("bullet_list", "ordered_list"):
            for index, item in enumerate(node.children):
                yield item, index > 0
        else:
            yield node, False


def _group(
    node: SyntaxTreeNode, source: list[str], *, gap: bool, glued: bool
) -> list[Group]:
    blocks = _Builder(depth=0 if node.type == "list_item" else -1).build(node)
    line = (node.map or (0, 0))[0]
    shown = " ".join(block.text for block in blocks).replace("☑", "x")
    if not blocks or _words(shown) != _words("\n".join(source)):
        return _plain(source, line, gap=gap, glued=glued)
    return [Group(line, (BLANK, *blocks) if gap else tuple(blocks), glued)]


def _plain(
    lines: list[str], first_line: int, *, gap: bool, glued: bool = False
) -> list[Group]:
    text = "\n".join(lines).strip("\n")
    if not text.strip():
        return []
    block = TextBlock(Content(text))
    return [Group(first_line, (BLANK, block) if gap else (block,), glued)]


def _words(text: str) -> str:
    return _NO_WORD.sub("", text).casefold()


@dataclass(slots=True)
class _Margin:
    """What stands left of the next block: a bullet once, then its indent."""

    first: Content = EMPTY
    rest: Content = EMPTY

    def take(self) -> tuple[Content, Content]:
        taken = (self.first, self.rest)
        self.first = self.rest
        return taken

    def indented(self, first: Content, rest: Content) -> _Margin:
        outer_first, outer_rest = self.take()
        return _Margin(outer_first + first, outer_rest + rest)


@dataclass(slots=True)
class _Builder:
    """Walks one top-level node and collects its blocks.

    ``depth`` counts lists around the node, so that nested bullets differ.
    """

    depth: int
    blocks: list[Block] = field(default_factory=list)

    def build(self, node: SyntaxTreeNode) -> list[Block]:
        self._add(node, _Margin())
        return self.blocks

    def _add(self, node: SyntaxTreeNode, margin: _Margin) -> None:
        match node.type:
            case "paragraph":
                self._text(_inline(node), margin)
            case "heading":
                style = _HEADINGS.get(node.tag, "bold")
                self._text(_inline(node).stylize_before(style), margin)
            case "fence" | "code_block":
                self._code(node, margin)
            case "math_block":
                self._text(Content.styled(node.content.rstrip("\n"), MATH), margin)
            case "hr":
                self._text(Content.styled("─" * 12, FAINT), margin)
            case "blockquote":
                self._children(node, margin.indented(_QUOTE_BAR, _QUOTE_BAR))
            case "bullet_list" | "ordered_list":
                self._list(node, margin)
            case "list_item":
                self._item(node, margin)
            case "table":
                self._table(node, margin)
            case _:
                self._children(node, margin)

    def _children(self, node: SyntaxTreeNode, margin: _Margin) -> None:
        for index, child in enumerate(node.children):
            if index and child.type not in ("bullet_list", "ordered_list"):
                self._text(EMPTY, margin)
            self._add(child, margin)

    def _text(self, body: Content, margin: _Margin) -> None:
        self.blocks.append(TextBlock(body, *margin.take()))

    def _list(self, node: SyntaxTreeNode, margin: _Margin) -> None:
        self.depth += 1
        for item in node.children:
            self._item(item, margin)
        self.depth -= 1

    def _item(self, node: SyntaxTreeNode, margin: _Margin) -> None:
        bullet = _BULLETS[self.depth % len(_BULLETS)]
        label = f"{node.info}{node.markup}" if node.info else bullet
        mark = Content.styled(f"{label} ", FAINT)
        inner = margin.indented(mark, Content(" " * len(mark)))
        if node.children:
            self._children(node, inner)
        else:
            self._text(EMPTY, inner)

    def _code(self, node: SyntaxTreeNode, margin: _Margin) -> None:
        margin = margin.indented(_CODE_BAR, _CODE_BAR)
        language = node.info.strip()
        if language:
            self._text(Content.styled(language, FAINT), margin)
        code = node.content.removesuffix("\n")
        self.blocks += code_blocks(code, language, *margin.take())

    def _table(self, node: SyntaxTreeNode, margin: _Margin) -> None:
        rows = [row for part in node.children for row in part.children]
        cells = [
            tuple(_inline(cell).expand_tabs(TAB_CELLS) for cell in row.children)
            for row in rows
        ]
        aligned = tuple(_alignment(cell) for cell in rows[0].children)
        self.blocks.append(
            TableBlock(cells[0], tuple(cells[1:]), aligned, *margin.take())
        )


def _alignment(cell: SyntaxTreeNode) -> str:
    style = str(cell.attrs.get("style", ""))
    return next((side for side in ("center", "right") if side in style), "left")


def _inline(node: SyntaxTreeNode) -> Content:
    """The text of a paragraph, heading or cell, with its styles as spans."""
    text = _StyledText()
    for child in node.children:
        text.add(child)
    return _with_task_mark(Content("".join(text.parts), text.spans))


@dataclass(slots=True)
class _StyledText:
    """Text that grows, and the styles of parts of it."""

    parts: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    length: int = 0

    def add(self, node: SyntaxTreeNode) -> None:
        start = self.length
        if node.type in ("softbreak", "hardbreak"):
            self._append("\n")
        elif node.children:
            for child in node.children:
                self.add(child)
        else:
            self._append(node.content)
        self._style(start, _INLINE_STYLES.get(node.type, ""))
        start = self.length
        self._append(_address(node))
        self._style(start, FAINT)

    def _append(self, text: str) -> None:
        self.parts.append(text)
        self.length += len(text)

    def _style(self, start: int, style: str) -> None:
        if style and self.length > start:
            self.spans.append(Span(start, self.length, style))


def _address(node: SyntaxTreeNode) -> str:
    """What a link or image hides: where it leads, in the order it was written."""
    if node.type not in ("link", "image") or node.markup == "autolink":
        return ""
    title = f" {node.attrs['title']}" if node.attrs.get("title") else ""
    return f" ({node.attrs.get('href', node.attrs.get('src', ''))}{title})"


def _with_task_mark(body: Content) -> Content:
    match = _TASK.match(body.plain)
    if match is None:
        return body
    mark = "☐ " if match[1] == " " else "☑ "
    return Content(mark) + body[match.end() :]
