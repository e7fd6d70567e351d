# SPDX-License-Identifier: Apache-2.0
"""Untrusted text made safe to write to a terminal.

A terminal obeys control characters: they set the title, fill the clipboard, move the
cursor, and a model's answer, a file name or an error from a server may contain them.
``sanitize`` replaces each by something visible, so nothing is obeyed and nothing is
hidden. Only the text on screen passes through here; what is stored or sent to the
model stays as it was.
"""

from __future__ import annotations

import re

_REPLACEMENT = "\ufffd"
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))


def _visible() -> dict[int, str]:
    table = {code: chr(0x2400 + code) for code in range(0x20) if code not in (9, 10)}
    table[0x7F] = "\u2421"
    table |= dict.fromkeys(range(0x80, 0xA0), _REPLACEMENT)
    table |= {0x2028: "\n", 0x2029: "\n"}
    table |= {code: f"\u27e8U+{code:04X}\u27e9" for code in _BIDI}
    return table | dict.fromkeys(range(0xD800, 0xE000), _REPLACEMENT)


_VISIBLE = _visible()
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def sanitize(text: str) -> str:
    r"""The text with everything a terminal would obey made visible.

    Newline and tab stay, ``\r\n`` becomes a newline. Other C0 controls become their
    control pictures (ESC is shown as ␛), DEL becomes ␡, C1 controls and lone
    surrogates U+FFFD, line and paragraph separators newlines, and characters that
    reorder text their code point between ⟨ and ⟩. The result is a fixed point:
    sanitizing it again changes nothing.

    Args:
        text: any string.

    Returns:
        A string that encodes to UTF-8 and holds no control but newline and tab.
    """
    if _UNSAFE.search(text) is None:
        return text
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def sanitize_line(text: str) -> str:
    """The sanitized text on one line: newlines and tabs become spaces.

    For names and titles, which have one row.
    """
    return sanitize(text).replace("\n", " ").replace("\t", " ")
