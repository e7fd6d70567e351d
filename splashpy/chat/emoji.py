# SPDX-License-Identifier: Apache-2.0
"""Pictures in text spelled out, for terminals that disagree about their width.

Each character is replaced on its own, so a text may be cut anywhere and its parts
replaced one after the other.
"""

from __future__ import annotations

import re
import unicodedata

from rich.cells import cell_len

_FIRST_LETTER = 0x1F1E6  # of the regional indicators, which spell flags
_LETTERS = range(_FIRST_LETTER, _FIRST_LETTER + 26)

# What only changes the character before it: joiner, keycap, form, skin and hair tags.
_MODIFIERS = "\u200d\u20e3\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f"
_PICTURES = (
    "\u231a\u231b\u23e9-\u23f3\u25fd\u25fe\u2600-\u27bf\u2b1b\u2b1c\u2b50\u2b55"
    "\U0001f000-\U0001faff"
)
_MODIFIER = re.compile(f"[{_MODIFIERS}]")
_ANY = re.compile(f"[{_MODIFIERS}{_PICTURES}]")
_PICTURE_CELLS = 2


def spelled_out(text: str) -> str:
    """The text with ``:party_popper:`` in place of the picture of one.

    Signs that take one cell, such as a check mark, stay. A flag becomes the letters of
    its country.
    """
    return _ANY.sub(lambda found: _word(found.group()), text)


def _word(character: str) -> str:
    if _MODIFIER.match(character):
        return ""
    if ord(character) in _LETTERS:
        return chr(ord("A") + ord(character) - _FIRST_LETTER)
    if cell_len(character) != _PICTURE_CELLS:
        return character
    name = unicodedata.name(character, f"U+{ord(character):X}")
    return f":{name.lower().replace(' ', '_')}:"
