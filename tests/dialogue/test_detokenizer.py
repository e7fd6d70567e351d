# SPDX-License-Identifier: Apache-2.0
"""Streamed text: equal to the whole decode, complete characters, constant cost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.dialogue.detokenizer import StreamDetokenizer
from splashpy.dialogue.tokenizer import Tokenizer

# Families, flags and skin tones are several scalars; e + U+0301 is one letter.
SCRIPTS = (
    "Příliš žluťoučký kůň",
    "日本語と한국어",
    "👩‍👩‍👧‍👦 🇨🇿 👍🏽 ❤️",
    "e\u0301a\u0308 ok",
    "the fox  the \n end",
    " leading and trailing ",
)


def chunks(tokenizer: Tokenizer, token_ids: Sequence[int]) -> list[str]:
    stream = StreamDetokenizer(tokenizer)
    return [*(stream.add(token_id) for token_id in token_ids), stream.flush()]


@given(data=st.data())
def test_the_pieces_of_any_ids_are_the_whole_decode(
    any_tokenizer: Tokenizer, data: st.DataObject
) -> None:
    beyond = any_tokenizer.vocab_size + 3
    token_ids = data.draw(st.lists(st.integers(0, beyond), max_size=40))

    assert "".join(chunks(any_tokenizer, token_ids)) == any_tokenizer.decode(token_ids)


@given(raw=st.binary(max_size=40))
def test_invalid_bytes_are_replaced_as_in_the_whole_decode(
    byte_tokenizer: Tokenizer, raw: bytes
) -> None:
    token_ids = [byte_id(byte_tokenizer, byte) for byte in raw]

    assert "".join(chunks(byte_tokenizer, token_ids)) == raw.decode("utf-8", "replace")
    assert byte_tokenizer.decode(token_ids) == raw.decode("utf-8", "replace")


@given(runs=st.lists(st.integers(0, 255) | st.just(-1), max_size=20))
def test_a_run_of_fallback_bytes_is_replaced_as_in_the_whole_decode(
    fallback_tokenizer: Tokenizer, runs: list[int]
) -> None:
    word = fallback_tokenizer.id_of("▁the")
    assert word is not None
    token_ids = [
        word if byte < 0 else fallback_id(fallback_tokenizer, byte) for byte in runs
    ]

    whole = fallback_tokenizer.decode(token_ids)
    assert "".join(chunks(fallback_tokenizer, token_ids)) == whole


@pytest.mark.parametrize("text", SCRIPTS)
def test_no_piece_of_a_valid_text_holds_a_replacement_character(
    any_tokenizer: Tokenizer, text: str
) -> None:
    token_ids = any_tokenizer.encode_literal(text)
    pieces = chunks(any_tokenizer, token_ids)

    if "\ufffd" not in any_tokenizer.decode(token_ids):
        assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) == any_tokenizer.decode(token_ids)


def test_a_character_appears_with_its_last_byte(byte_tokenizer: Tokenizer) -> None:
    token_ids = byte_tokenizer.encode("a🙂b")

    assert chunks(byte_tokenizer, token_ids) == ["a", "", "", "", "🙂", "b", ""]


def test_half_a_character_at_the_end_is_one_replacement_character(
    byte_tokenizer: Tokenizer,
) -> None:
    token_ids = byte_tokenizer.encode("ok🙂")[:-1]

    assert "".join(chunks(byte_tokenizer, token_ids)) == "ok\ufffd"


def test_the_space_before_a_word_comes_with_the_word(
    fallback_tokenizer: Tokenizer,
) -> None:
    token_ids = fallback_tokenizer.encode("the the a")

    assert chunks(fallback_tokenizer, token_ids)[:3] == ["the", " the", " a"]


def test_text_after_a_flush_is_no_part_of_the_run_before_it(
    fallback_tokenizer: Tokenizer,
) -> None:
    the = fallback_tokenizer.encode("the")
    stream = StreamDetokenizer(fallback_tokenizer)
    for token_id in (*the, fallback_id(fallback_tokenizer, 0xC3)):
        stream.add(token_id)

    assert stream.flush() == "\ufffd"
    stream.add(fallback_id(fallback_tokenizer, 0xA9))
    assert stream.add(the[0]) == "\ufffd the"


def test_special_tokens_have_no_text(byte_tokenizer: Tokenizer) -> None:
    token_ids = byte_tokenizer.encode("a<|im_start|>b<|im_end|>")

    assert "".join(chunks(byte_tokenizer, token_ids)) == "ab"


@pytest.mark.parametrize("length", [100, 1000])
def test_decoding_costs_a_few_ids_per_token(
    fallback_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    decoded = 0
    decode = fallback_tokenizer.decode

    def counting(ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        nonlocal decoded
        decoded += len(ids)
        return decode(ids, skip_special_tokens=skip_special_tokens)

    token_ids = (fallback_tokenizer.encode("the 🙂 a b") * length)[:length]
    monkeypatch.setattr(fallback_tokenizer, "decode", counting)
    chunks(fallback_tokenizer, token_ids)

    # Each id is decoded as new, as the window's first, and as what is known of it.
    assert decoded <= 3 * length


def byte_id(tokenizer: Tokenizer, byte: int) -> int:
    """Id of one byte: printable ones are spelled as themselves, others from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in printable]
    spelling = chr(byte) if byte in printable else chr(0x100 + others.index(byte))
    token_id = tokenizer.id_of(spelling)
    assert token_id is not None
    return token_id


def fallback_id(tokenizer: Tokenizer, byte: int) -> int:
    token_id = tokenizer.id_of(f"<0x{byte:02X}>")
    assert token_id is not None
    return token_id
