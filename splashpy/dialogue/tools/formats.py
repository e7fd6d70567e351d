# SPDX-License-Identifier: Apache-2.0
"""How each family of models writes a tool call, and which family a model belongs to.

The family is recognised by the words of the chat template, in the order of ``FORMATS``:
the first whose marks all occur wins. A family that writes its calls in control tokens
of its own is recognised by these where a template names none of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from splashpy.dialogue.tools.frames import brace_frame, pair_frame, tag_frame
from splashpy.dialogue.tools.json_call import HeadedReader, HeadWords, JsonCallReader
from splashpy.dialogue.tools.literals import BlockReader, braces, python_calls
from splashpy.dialogue.tools.notation import Frame, Literals, Tagged
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
        frame: how a call that is written for the model, or held to a schema, looks.
        tokens: control tokens no other family has.
    """

    name: str
    marks: tuple[str, ...]
    region: tuple[str, str]
    reader: MakeReader
    frame: Frame
    markers: tuple[str, ...] = ()
    keeps_opener: bool = False
    json_too: bool = False
    tags_too: bool = False
    bare: str = ""
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
_QWEN_BARE = replace(_QWEN, region=("", ""))


def _with_attributes(
    call: str,
    argument: str,
    region: tuple[str, str] = ("", ""),
    *,
    unwraps: bool = False,
) -> TagWords:
    """Tags whose names are attributes: ``<invoke name="f">``."""
    return TagWords(
        call=re.compile(rf"<{call}\s+{_NAMED}\s*>"),
        argument=re.compile(rf"<{argument}\s+{_NAMED}\s*>"),
        argument_start=f"<{argument}",
        call_close=f"</{call}>",
        argument_close=f"</{argument}>",
        region=region,
        unwraps=unwraps,
    )


_MUSE = _with_attributes(
    "atem:invoke",
    "atem:parameter",
    ("<atem:function_calls>", "</atem:function_calls>"),
)
_MINIMAX = _with_attributes(
    "invoke", "parameter", ("<minimax:tool_call>", "</minimax:tool_call>")
)
_MINICPM = _with_attributes("function", "param", unwraps=True)
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
        tag_frame(_MINIMAX, '<invoke name="{}">', '<parameter name="{}">'),
    ),
    ToolFormat(
        "gemma4",
        _GEMMA,
        _GEMMA,
        lambda writer: BlockReader(braces('<|"|>'), _GEMMA, writer),
        brace_frame(_GEMMA, '<|"|>'),
        markers=('<|"|>',),
    ),
    ToolFormat(
        "function_gemma",
        ("<start_function_call>",),
        _FUNCTION_GEMMA,
        lambda writer: BlockReader(braces("<escape>"), _FUNCTION_GEMMA, writer),
        brace_frame(_FUNCTION_GEMMA, "<escape>"),
        markers=("<escape>",),
    ),
    ToolFormat(
        "longcat",
        ("<longcat_tool_call>",),
        _LONGCAT.region,
        lambda writer: PairReader(_LONGCAT, writer),
        pair_frame(_LONGCAT),
        markers=(*_LONGCAT.key, *_LONGCAT.value),
        json_too=True,
    ),
    ToolFormat(
        "glm47",
        ("<arg_key>",),
        _CALL,
        lambda writer: PairReader(_GLM, writer),
        pair_frame(_GLM),
        markers=(*_GLM.key, *_GLM.value),
        json_too=True,
    ),
    ToolFormat(
        "pythonic",
        ("<|tool_call_start|>",),
        _PYTHON,
        lambda writer: BlockReader(python_calls, _PYTHON, writer),
        Frame(
            before="<|tool_call_start|>[",
            after="(",
            end=")",
            again=", ",
            close="]<|tool_call_end|>",
            arguments=Literals(
                key="{key}=",
                inner_key='"{key}": ',
                quote='"',
                escapes=True,
                comma=", ",
                words=("True", "False", "None"),
                never=_PYTHON,
            ),
        ),
    ),
    ToolFormat(
        "qwen3_coder",
        ("<tool_call>", "<function="),
        _CALL,
        qwen_tags,
        tag_frame(_QWEN, "<function={}>", "<parameter={}>", alone=True),
        json_too=True,
        bare="<function=",
    ),
    ToolFormat(
        "kimi_k2",
        ("<|tool_calls_section_begin|>",),
        _KIMI_SECTION,
        lambda writer: HeadedReader(_KIMI, _KIMI_SECTION, writer),
        Frame(
            before=f"{_KIMI_SECTION[0]}{_KIMI.begin}functions.",
            after=f":{{index}}{_KIMI.arguments}",
            end=_KIMI.end,
            again=f"{_KIMI.begin}functions.",
            close=_KIMI_SECTION[1],
        ),
        markers=(_KIMI.begin, _KIMI.arguments, _KIMI.end),
    ),
    ToolFormat(
        "minicpm5",
        ('<function name="', '<param name="'),
        ('<function name="', ""),
        lambda writer: TagReader(_MINICPM, writer),
        tag_frame(_MINICPM, '<function name="{}">', '<param name="{}">'),
        keeps_opener=True,
    ),
    ToolFormat(
        "mistral",
        ("[TOOL_CALLS]",),
        _MISTRAL_REGION,
        lambda writer: HeadedReader(_MISTRAL, _MISTRAL_REGION, writer),
        Frame(before="[TOOL_CALLS]", after="[ARGS]", end="", again="[TOOL_CALLS]"),
        markers=("[ARGS]", "[CALL_ID]"),
    ),
    ToolFormat(
        "muse_spark",
        ("<atem:function_calls>",),
        _MUSE.region,
        lambda writer: TagReader(_MUSE, writer),
        tag_frame(_MUSE, '<atem:invoke name="{}">', '<atem:parameter name="{}">'),
    ),
    ToolFormat(
        "kimi_k3",
        (OPEN, f"{CLOSE}call"),
        XTML_REGION,
        XtmlReader,
        Frame(
            before=f'{XTML_REGION[0]}{OPEN}call tool="',
            after=f'" index="{{index}}"{SEP}',
            end=f"{CLOSE}call{SEP}",
            again=f'{OPEN}call tool="',
            close=XTML_REGION[1],
            arguments=Tagged(
                f'{OPEN}argument key="{{key}}" type="{{type}}"{SEP}',
                f"{CLOSE}argument{SEP}",
                (OPEN, CLOSE, SEP),
            ),
            first=1,
        ),
        markers=(OPEN, CLOSE, SEP),
        tokens=(OPEN, CLOSE, SEP, "<|end_of_msg|>"),
    ),
    ToolFormat(
        "harmony",
        ("<|channel|>", "<|call|>"),
        _HARMONY_REGION,
        lambda writer: HeadedReader(_HARMONY, _HARMONY_REGION, writer),
        Frame(
            before="<|channel|>commentary to=functions.",
            after="<|constrain|>json<|message|>",
            end="<|call|>",
        ),
        markers=("<|channel|>", "<|constrain|>", "<|message|>", "<|call|>"),
        tokens=("<|channel|>", "<|constrain|>", "<|message|>", "<|call|>"),
    ),
    ToolFormat(
        "json_tools",
        ("<tool_call>",),
        _CALL,
        json_between(_CALL),
        Frame(
            before='<tool_call>\n{"name": "',
            after='", "arguments": ',
            end="}\n</tool_call>",
            again='\n<tool_call>\n{"name": "',
        ),
        tags_too=True,
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
