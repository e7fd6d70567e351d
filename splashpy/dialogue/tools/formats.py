# SPDX-License-Identifier: Apache-2.0
"""How each family of models writes a tool call, and which family a model belongs to.

The family is recognised by the words of the chat template, in the order of ``FORMATS``:
the first whose marks all occur wins. A family that writes its calls in control tokens
of its own is recognised by these where a template names none of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from splashpy.dialogue.tools.json_call import HeadedReader, HeadWords, JsonCallReader
from splashpy.dialogue.tools.literals import BlockReader, braces, python_calls
from splashpy.dialogue.tools.pairs import PairReader, PairWords
from splashpy.dialogue.tools.reader import CallReader
from splashpy.dialogue.tools.tags import TagReader, TagWords
from splashpy.dialogue.tools.writer import CallWriter
from splashpy.dialogue.tools.xtml import CLOSE, OPEN, SEP, XtmlReader
from splashpy.dialogue.tools.xtml import REGION as XTML_REGION

MakeReader = Callable[[CallWriter], CallReader]
_NAMED = r'name\s*=\s*["\']?([^\s<>="\']{1,128})["\']?'


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """One way to write calls.

    Attributes:
        name: how the family is called.
        marks: texts a chat template of the family contains.
        region: opening and closing marker; the opening one begins a call wherever it
            stands, the closing one may be empty.
        reader: reads what follows the opening marker.
        markers: control tokens within a call whose text must not be lost.
        keeps_opener: the reader wants to see the opening marker too.
        json_too: models of the family also write JSON between the markers.
        tags_too: the same for calls in tags.
        bare: a call without the opening marker begins with this, on a line of its own.
        forced: what an answer that must be a call begins with; ``{name}`` is its name.
        tokens: control tokens no other family has.
    """

    name: str
    marks: tuple[str, ...]
    region: tuple[str, str]
    reader: MakeReader
    markers: tuple[str, ...] = ()
    keeps_opener: bool = False
    json_too: bool = False
    tags_too: bool = False
    bare: str = ""
    forced: str = ""
    tokens: tuple[str, ...] = ()

    @property
    def texts(self) -> frozenset[str]:
        """Control tokens whose text is part of a call."""
        return frozenset((*filter(None, self.region), *self.markers))


_CALL = ("<tool_call>", "</tool_call>")
_QWEN = TagWords(
    call=re.compile(r"<function=([^\s<>=]{1,128})>"),
    argument=re.compile(r"<parameter=([^\s<>=]{1,128})>"),
    argument_start="<parameter=",
    call_close="</function>",
    argument_close="</parameter>",
    region=_CALL,
    trims=True,
)
_QWEN_BARE = TagWords(
    call=_QWEN.call,
    argument=_QWEN.argument,
    argument_start=_QWEN.argument_start,
    call_close=_QWEN.call_close,
    argument_close=_QWEN.argument_close,
    trims=True,
)
_MUSE = TagWords(
    call=re.compile(rf"<atem:invoke\s+{_NAMED}\s*>"),
    argument=re.compile(rf"<atem:parameter\s+{_NAMED}\s*>"),
    argument_start="<atem:parameter",
    call_close="</atem:invoke>",
    argument_close="</atem:parameter>",
    region=("<atem:function_calls>", "</atem:function_calls>"),
)
_MINIMAX = TagWords(
    call=re.compile(rf"<invoke\s+{_NAMED}\s*>"),
    argument=re.compile(rf"<parameter\s+{_NAMED}\s*>"),
    argument_start="<parameter",
    call_close="</invoke>",
    argument_close="</parameter>",
    region=("<minimax:tool_call>", "</minimax:tool_call>"),
)
_MINICPM = TagWords(
    call=re.compile(rf"<function\s+{_NAMED}\s*>"),
    argument=re.compile(rf"<param\s+{_NAMED}\s*>"),
    argument_start="<param",
    call_close="</function>",
    argument_close="</param>",
    unwraps=True,
)
_GLM = PairWords(("<arg_key>", "</arg_key>"), ("<arg_value>", "</arg_value>"), _CALL)
_LONGCAT = PairWords(
    ("<longcat_arg_key>", "</longcat_arg_key>"),
    ("<longcat_arg_value>", "</longcat_arg_value>"),
    ("<longcat_tool_call>", "</longcat_tool_call>"),
)
_KIMI = HeadWords(
    head=re.compile(r"(?P<id>(?:functions\.)?(?P<name>[^\s<>:]{1,128})(?::\d+)?)"),
    arguments="<|tool_call_argument_begin|>",
    begin="<|tool_call_begin|>",
    end="<|tool_call_end|>",
)
_MISTRAL = HeadWords(
    head=re.compile(
        r"(?P<name>[^\s\[\]{}<>]{1,128})(?:\[CALL_ID\](?P<id>[^\s\[\]]{1,128}))?"
    ),
    arguments="[ARGS]",
)
_HARMONY = HeadWords(
    head=re.compile(
        r"(?:functions\.)?(?P<name>[^\s<>]{1,128})(?:\s*(?:<\|constrain\|>)?\s*[\w-]*)"
    ),
    arguments="<|message|>",
)
_HARMONY_REGION = ("<|channel|>commentary to=", "<|call|>")
_GEMMA = ("<|tool_call>", "<tool_call|>")
_FUNCTION_GEMMA = ("<start_function_call>", "<end_function_call>")
_PYTHON = ("<|tool_call_start|>", "<|tool_call_end|>")
_KIMI_SECTION = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
_MISTRAL_REGION = ("[TOOL_CALLS]", "")


def qwen_bare(writer: CallWriter) -> CallReader:
    """The reader of a call that lacks the markers around it."""
    return TagReader(_QWEN_BARE, writer)


def json_between(region: tuple[str, str]) -> MakeReader:
    """The reader of JSON calls between these markers."""
    return lambda writer: JsonCallReader(region, writer)


def qwen_tags(writer: CallWriter) -> CallReader:
    """The reader of calls in tags between ``<tool_call>`` and its closing marker."""
    return TagReader(_QWEN, writer)


FORMATS = (
    ToolFormat(
        "minimax_m2",
        ("<minimax:tool_call>",),
        _MINIMAX.region,
        lambda writer: TagReader(_MINIMAX, writer),
        forced='<minimax:tool_call>\n<invoke name="{name}">\n',
    ),
    ToolFormat(
        "gemma4",
        _GEMMA,
        _GEMMA,
        lambda writer: BlockReader(braces('<|"|>'), _GEMMA, writer),
        markers=('<|"|>',),
        forced="<|tool_call>call:{name}{{",
    ),
    ToolFormat(
        "function_gemma",
        ("<start_function_call>",),
        _FUNCTION_GEMMA,
        lambda writer: BlockReader(braces("<escape>"), _FUNCTION_GEMMA, writer),
        markers=("<escape>",),
        forced="<start_function_call>call:{name}{{",
    ),
    ToolFormat(
        "longcat",
        ("<longcat_tool_call>",),
        _LONGCAT.region,
        lambda writer: PairReader(_LONGCAT, writer),
        markers=(*_LONGCAT.key, *_LONGCAT.value),
        json_too=True,
        forced="<longcat_tool_call>{name}\n",
    ),
    ToolFormat(
        "glm47",
        ("<arg_key>",),
        _CALL,
        lambda writer: PairReader(_GLM, writer),
        markers=(*_GLM.key, *_GLM.value),
        json_too=True,
        forced="<tool_call>{name}\n",
    ),
    ToolFormat(
        "pythonic",
        ("<|tool_call_start|>",),
        _PYTHON,
        lambda writer: BlockReader(python_calls, _PYTHON, writer),
        forced="<|tool_call_start|>[{name}(",
    ),
    ToolFormat(
        "qwen3_coder",
        ("<tool_call>", "<function="),
        _CALL,
        qwen_tags,
        json_too=True,
        bare="<function=",
        forced="<tool_call>\n<function={name}>\n",
    ),
    ToolFormat(
        "kimi_k2",
        ("<|tool_calls_section_begin|>",),
        _KIMI_SECTION,
        lambda writer: HeadedReader(_KIMI, _KIMI_SECTION, writer),
        markers=(_KIMI.begin, _KIMI.arguments, _KIMI.end),
        forced=(
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:0"
            "<|tool_call_argument_begin|>"
        ),
    ),
    ToolFormat(
        "minicpm5",
        ('<function name="', '<param name="'),
        ('<function name="', ""),
        lambda writer: TagReader(_MINICPM, writer),
        keeps_opener=True,
        forced='<function name="{name}">',
    ),
    ToolFormat(
        "mistral",
        ("[TOOL_CALLS]",),
        _MISTRAL_REGION,
        lambda writer: HeadedReader(_MISTRAL, _MISTRAL_REGION, writer),
        markers=("[ARGS]", "[CALL_ID]"),
        forced="[TOOL_CALLS]{name}[ARGS]",
    ),
    ToolFormat(
        "muse_spark",
        ("<atem:function_calls>",),
        _MUSE.region,
        lambda writer: TagReader(_MUSE, writer),
        forced='<atem:function_calls>\n<atem:invoke name="{name}">\n',
    ),
    ToolFormat(
        "kimi_k3",
        (OPEN, f"{CLOSE}call"),
        XTML_REGION,
        XtmlReader,
        markers=(OPEN, CLOSE, SEP),
        forced=f'{XTML_REGION[0]}{OPEN}call tool="{{name}}" index="1"{SEP}',
        tokens=(OPEN, CLOSE, SEP, "<|end_of_msg|>"),
    ),
    ToolFormat(
        "harmony",
        ("<|channel|>", "<|call|>"),
        _HARMONY_REGION,
        lambda writer: HeadedReader(_HARMONY, _HARMONY_REGION, writer),
        markers=("<|channel|>", "<|constrain|>", "<|message|>", "<|call|>"),
        forced="<|channel|>commentary to=functions.{name}<|constrain|>json<|message|>",
        tokens=("<|channel|>", "<|constrain|>", "<|message|>", "<|call|>"),
    ),
    ToolFormat(
        "json_tools",
        ("<tool_call>",),
        _CALL,
        json_between(_CALL),
        tags_too=True,
        forced='<tool_call>\n{{"name": "{name}", "arguments": ',
    ),
)


def find_format(
    template: str, known: Callable[[str], bool] = lambda token: False
) -> ToolFormat | None:
    """The format a chat template describes; None where nothing describes one.

    Args:
        template: text of the chat template.
        known: whether a text is a control token of the model.
    """
    for form in FORMATS:
        if all(mark in template for mark in form.marks):
            return form
    return next(
        (form for form in FORMATS if form.tokens and all(map(known, form.tokens))),
        None,
    )


def named_format(name: str) -> ToolFormat:
    """The format of this name.

    Raises:
        KeyError: there is none.
    """
    return {form.name: form for form in FORMATS}[name]
