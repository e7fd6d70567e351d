# SPDX-License-Identifier: Apache-2.0
"""Tokens told of an answer are those of its text, however it ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from splashpy.dialogue.alignment import TokenPlace
from splashpy.dialogue.channels import ChannelSplitter
from splashpy.dialogue.detokenizer import token_bytes
from splashpy.dialogue.reasoning import ReasoningTags
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.dialogue.turn import Turn
from splashpy.protocol import Piece

texts = st.text(alphabet="ab é🙂", max_size=12)
stops = st.lists(st.text(alphabet="ab é", min_size=1, max_size=4), max_size=2)


def speak(
    turn: Turn, tokens: list[int], size: int
) -> tuple[str, list[TokenPlace], list[tuple[int, int]]]:
    """Text, places of tokens, and after each step how many characters and tokens."""
    text, places, steps = "", [], []
    for start in range(0, len(tokens), size):
        block = tokens[start : start + size]
        delta = turn.feed(block, ["a"] * len(block))
        text += "".join(piece.text for piece in delta.pieces)
        places += turn.settled()
        steps.append((len(text), len(places)))
        if delta.stopped:
            break
    rest = turn.finish("stop" if turn.stopped else "length")
    text += "".join(part.text for part in rest if isinstance(part, Piece))
    places += turn.settled()
    return text, places, steps


@given(text=texts, stop=stops, size=st.integers(1, 4), ends=st.booleans())
def test_the_tokens_told_are_those_the_text_was_made_of(
    byte_tokenizer: Tokenizer, text: str, stop: list[str], size: int, ends: bool
) -> None:
    tokens = byte_tokenizer.encode_literal(text)
    tokens += [min(byte_tokenizer.eos_token_ids)] * ends
    turn = Turn(byte_tokenizer, splitter=ChannelSplitter(None), stops=stop)
    turn.align()

    shown, places, steps = speak(turn, tokens, size)

    told = b"".join(token_bytes(byte_tokenizer, t) for t in tokens[: len(places)])
    assert told == shown.encode()
    offsets = [len(told[:n].decode(errors="ignore")) for n in range(len(told))]
    assert [place.offset for place in places] == offsets
    for characters, count in steps:
        assert len(shown[:characters].encode()) >= count, "told before its text"


def test_every_token_knows_what_it_is_part_of(byte_tokenizer: Tokenizer) -> None:
    opener = byte_tokenizer.encode("<think>")[0]
    closer = byte_tokenizer.encode("</think>")[0]
    tags = ReasoningTags("<think>", "</think>", opener, closer)
    turn = Turn(byte_tokenizer, splitter=ChannelSplitter(tags))
    turn.align()
    tokens = byte_tokenizer.encode("<think>ab</think>c")

    _, places, _ = speak(turn, tokens, 3)

    assert "".join(place.channel for place in places) == "rrrrc"
