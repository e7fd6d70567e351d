# SPDX-License-Identifier: Apache-2.0
"""Frames of the families that write calls alike but for their words."""

from __future__ import annotations

from splashpy.dialogue.tools.notation import Frame, Literals, Tagged
from splashpy.dialogue.tools.pairs import PairWords
from splashpy.dialogue.tools.tags import TagWords


def tag_frame(
    words: TagWords, call: str, argument: str, *, alone: bool = False
) -> Frame:
    """The frame of calls in tags.

    Args:
        words: of the family.
        call: the tag that begins a call, with ``{}`` for the name.
        argument: the tag that begins an argument, with ``{}`` for its key.
        alone: there is one call between the markers.
    """
    opener, closer = (f"{text}\n" if text else "" for text in words.region)
    before, after = call.split("{}")
    line = "\n" if opener else ""
    broken = "\n" if words.trims else ""
    again = f"\n{opener if alone else ''}{before}"
    closing = closer.rstrip()
    return Frame(
        before=opener + before,
        after=after + line,
        end=words.call_close + (f"\n{closing}" if alone else ""),
        again=again,
        close="" if alone or not closing else f"\n{closing}",
        arguments=Tagged(
            argument.replace("{}", "{key}") + broken,
            broken + words.argument_close + line,
            words.value_ends,
        ),
    )


def pair_frame(words: PairWords) -> Frame:
    """The frame of calls in pairs of a key and a value."""
    (key, key_end), (value, value_end) = words.key, words.value
    opener, closer = words.region
    return Frame(
        before=opener,
        after="\n",
        end=closer,
        again=f"\n{opener}",
        arguments=Tagged(
            f"{key}{{key}}{key_end}\n{value}",
            f"{value_end}\n",
            (*words.key, *words.value, *words.region),
        ),
    )


def brace_frame(region: tuple[str, str], quote: str) -> Frame:
    """The frame of ``call:f{k:v}``."""
    opener, closer = region
    return Frame(
        before=f"{opener}call:",
        after="{",
        end=f"}}{closer}",
        again=f"{opener}call:",
        arguments=Literals(
            key="{key}:",
            inner_key="{key}:",
            quote=quote,
            escapes=False,
            comma=",",
            words=("true", "false", "null"),
            never=(quote, *region),
        ),
    )
