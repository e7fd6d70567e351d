# SPDX-License-Identifier: Apache-2.0
"""Token ids to text while they arrive, never a character too early or twice.

The pieces, concatenated, are what ``Tokenizer.decode`` makes of all ids at once. Text
is returned as soon as no later token can change it, and every token costs the same
however long the answer is. Two ways lead there:

- Tokens spelled in the byte alphabet of GPT-2 are bytes; an incremental UTF-8 decoder
  holds back half a character. Python and the tokenizers library replace invalid bytes
  alike (one U+FFFD per maximal subpart, Unicode 15, section 3.9).
- Any other decoder is asked about a window: the last token that is out already, and
  those that are not. The difference between the text of the window and the text of
  its first token is new. With byte fallback a run of ``<0xNN>`` tokens is waited for
  to its end, since one invalid byte turns the whole run into replacement characters.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from typing import Protocol

from splashpy.dialogue.tokenizer import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


class StreamDetokenizer:
    """The text of one answer; special tokens have none."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        kind = _ByteText if tokenizer.byte_level else _WindowText
        self._text: _Text = kind(tokenizer)

    def add(self, token_id: int) -> str:
        """Text that is final now that ``token_id`` is known; often empty."""
        spelling = self._tokenizer.token_of(token_id)
        if spelling is None or self._tokenizer.is_special(token_id):
            return ""
        return self._text.add(token_id, spelling)

    @property
    def holding(self) -> bool:
        """Whether the text of a token is still to come."""
        return self._text.holding

    def flush(self) -> str:
        """What was held back, half a character as U+FFFD."""
        return self._text.flush()


class _Text(Protocol):
    @property
    def holding(self) -> bool: ...

    def add(self, token_id: int, spelling: str) -> str: ...

    def flush(self) -> str: ...


class _ByteText:
    def __init__(self, tokenizer: Tokenizer) -> None:
        del tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token_id: int, spelling: str) -> str:
        del token_id
        return self._utf8.decode(_spelled_bytes(spelling))

    @property
    def holding(self) -> bool:
        return bool(self._utf8.getstate()[0])

    def flush(self) -> str:
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text


class _WindowText:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._emitted: list[int] = []
        self._pending: list[int] = []

    def add(self, token_id: int, spelling: str) -> str:
        self._pending.append(token_id)
        if self._tokenizer.byte_fallback and _BYTE_TOKEN.fullmatch(spelling):
            return ""
        return self._take()

    @property
    def holding(self) -> bool:
        return bool(self._pending)

    def flush(self) -> str:
        # The token before an unfinished run of bytes stays the window's first: text
        # that follows is no part of that run.
        first, text = self._emitted, self._take()
        self._emitted = first or self._emitted
        return text

    def _take(self) -> str:
        known = self._decode(self._emitted)
        text = self._decode([*self._emitted, *self._pending])
        self._emitted, self._pending = self._pending[-1:] or self._emitted, []
        return text[len(known) :]

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False) if ids else ""


def token_bytes(tokenizer: Tokenizer, token_id: int) -> bytes:
    """The bytes one token stands for, which may be part of a character.

    Empty for an id outside the vocabulary.
    """
    spelling = tokenizer.token_of(token_id)
    if spelling is None:
        return b""
    if tokenizer.byte_level and not tokenizer.is_special(token_id):
        return _spelled_bytes(spelling)
    if tokenizer.byte_fallback and _BYTE_TOKEN.fullmatch(spelling):
        return bytes([int(spelling[3:5], 16)])
    return tokenizer.decode([token_id], skip_special_tokens=False).encode()


def _byte_alphabet() -> dict[str, int]:
    """The characters GPT-2's tokenizer writes for the 256 bytes.

    Printable bytes stand for themselves; the others, in order, are written as the
    characters from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {chr(0x100 + index): byte for index, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | shifted


_BYTES = _byte_alphabet()


def _spelled_bytes(spelling: str) -> bytes:
    """Bytes of a token; an added token outside the alphabet is its own UTF-8."""
    try:
        return bytes([_BYTES[character] for character in spelling])
    except KeyError:
        return spelling.encode()
