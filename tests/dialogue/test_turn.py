# SPDX-License-Identifier: Apache-2.0
"""The whole text path of an answer: channels, kinds, stops, counts."""

from __future__ import annotations

import typing
from collections.abc import Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.dialogue.channels import ChannelSplitter
from splashpy.dialogue.reasoning import ReasoningTags, find_tags
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.dialogue.turn import Turn, TurnDelta
from splashpy.errors import UsageError
from splashpy.protocol import Kind, Piece

WRITTEN = ReasoningTags("<think>", "</think>")


def turn_of(
    tokenizer: Tokenizer,
    *,
    tags: ReasoningTags | None = None,
    inside: bool = False,
    stops: Sequence[str] = (),
    end_ids: Collection[int] | None = None,
) -> Turn:
    splitter = ChannelSplitter(tags, inside=inside)
    return Turn(tokenizer, splitter=splitter, stops=stops, end_ids=end_ids)


def feed_all(turn: Turn, token_ids: Sequence[int]) -> tuple[Piece, ...]:
    delta = turn.feed(token_ids, ["t"] * len(token_ids))
    return delta.pieces + turn.finish("stop" if delta.stopped else "length")


def text_of(pieces: Sequence[Piece], channel: str = "c") -> str:
    return "".join(piece.text for piece in pieces if piece.channel == channel)


def token_tags(tokenizer: Tokenizer) -> ReasoningTags:
    tags = find_tags("", tokenizer.control_id)
    assert tags is not None
    return tags


def test_held_text_takes_the_kind_of_the_token_that_completes_it(
    byte_tokenizer: Tokenizer,
) -> None:
    turn = turn_of(byte_tokenizer)
    token_ids = byte_tokenizer.encode("aé")

    delta = turn.feed(token_ids, ["t", "a", "l"])

    assert delta.pieces == (Piece("a", "t", "c"), Piece("é", "l", "c"))


def test_neighbours_of_one_kind_and_channel_are_one_piece(
    byte_tokenizer: Tokenizer,
) -> None:
    turn = turn_of(byte_tokenizer)

    delta = turn.feed(byte_tokenizer.encode("abcd"), ["a", "a", "t", "t"])

    assert delta == TurnDelta((Piece("ab", "a", "c"), Piece("cd", "t", "c")), False, 4)


def test_one_kind_per_token_is_demanded(byte_tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="2 tokens"):
        turn_of(byte_tokenizer).feed([1, 2], ["a"])


def test_nothing_after_an_end_token_appears(byte_tokenizer: Tokenizer) -> None:
    turn = turn_of(byte_tokenizer)
    token_ids = byte_tokenizer.encode("ok<|im_end|>junk")

    delta = turn.feed(token_ids, ["a"] * len(token_ids))

    assert delta == TurnDelta((Piece("ok", "a", "c"),), True, 3)
    assert turn.feed(token_ids, ["a"] * len(token_ids)) == TurnDelta((), True, 0)
    assert turn.finish("stop") == ()
    assert turn.completion_tokens == 3


def test_an_ignored_end_token_has_no_text(byte_tokenizer: Tokenizer) -> None:
    turn = turn_of(byte_tokenizer, end_ids=())

    pieces = feed_all(turn, byte_tokenizer.encode("a<|im_end|>b"))

    assert text_of(pieces) == "ab"
    assert turn.completion_tokens == 3


def test_end_ids_of_the_request_end_the_answer(byte_tokenizer: Tokenizer) -> None:
    ends = byte_tokenizer.eos_token_ids | set(byte_tokenizer.encode("!"))
    turn = turn_of(byte_tokenizer, end_ids=ends)

    assert text_of(feed_all(turn, byte_tokenizer.encode("a!b"))) == "a"


def test_a_stop_string_over_many_tokens_is_never_shown(
    byte_tokenizer: Tokenizer,
) -> None:
    turn = turn_of(byte_tokenizer, stops=["beta gamma"])
    shown = ""
    for token_id in byte_tokenizer.encode("alpha beta gamma delta"):
        delta = turn.feed([token_id], ["t"])
        shown += text_of(delta.pieces)
        assert "alpha ".startswith(shown)
        if delta.stopped:
            break

    assert shown == "alpha "
    assert turn.completion_tokens == len("alpha beta gamma")
    assert turn.finish("stop") == ()


def test_a_stop_string_in_the_middle_of_a_block_cuts_the_block(
    byte_tokenizer: Tokenizer,
) -> None:
    turn = turn_of(byte_tokenizer, stops=["|"])

    delta = turn.feed(byte_tokenizer.encode("ab|cd"), ["a"] * 5)

    assert delta == TurnDelta((Piece("ab", "a", "c"),), True, 3)


def test_a_stop_string_begun_and_not_completed_is_shown_at_the_end(
    byte_tokenizer: Tokenizer,
) -> None:
    turn = turn_of(byte_tokenizer, stops=["beta gamma"])

    assert text_of(feed_all(turn, byte_tokenizer.encode("a beta"))) == "a beta"
    assert turn.finish("length") == ()


def test_a_stop_string_that_is_a_special_token_stops_by_its_id(
    byte_tokenizer: Tokenizer,
) -> None:
    turn = turn_of(byte_tokenizer, stops=["<|endoftext|>"])

    delta = turn.feed(byte_tokenizer.encode("a<|endoftext|>b"), ["t"] * 3)

    assert (text_of(delta.pieces), delta.tokens_used) == ("a", 2)


def test_an_empty_stop_string_is_refused(byte_tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match="empty"):
        turn_of(byte_tokenizer, stops=[""])


def test_stop_strings_are_looked_for_in_content_only(
    plain_tokenizer: Tokenizer,
) -> None:
    turn = turn_of(plain_tokenizer, tags=WRITTEN, stops=["END"])
    token_ids = plain_tokenizer.encode("<think>END</think>\nyes END no")

    pieces = feed_all(turn, token_ids)

    assert pieces == (Piece("END", "t", "r"), Piece("yes ", "t", "c"))


def test_tag_tokens_switch_and_their_spelling_does_not(
    byte_tokenizer: Tokenizer,
) -> None:
    turn = turn_of(byte_tokenizer, tags=token_tags(byte_tokenizer))
    token_ids = [
        *byte_tokenizer.encode("<think>a"),
        *byte_tokenizer.encode_literal("</think>"),
        *byte_tokenizer.encode("</think>\n\nb"),
        *byte_tokenizer.encode_literal("<think>"),
    ]

    pieces = feed_all(turn, token_ids)

    assert pieces == (Piece("a</think>", "t", "r"), Piece("b<think>", "t", "c"))
    assert turn.reasoning_tokens == 1 + len("</think>")
    assert turn.completion_tokens == len(token_ids)


def test_reasoning_the_prompt_opened_is_reasoning_from_the_first_piece(
    byte_tokenizer: Tokenizer,
) -> None:
    turn = turn_of(byte_tokenizer, tags=token_tags(byte_tokenizer), inside=True)

    first = turn.feed(byte_tokenizer.encode("why"), ["t"] * 3)
    rest = feed_all(turn, byte_tokenizer.encode("</think>yes"))

    assert first.pieces == (Piece("why", "t", "r"),)
    assert rest == (Piece("yes", "t", "c"),)
    assert turn.reasoning_tokens == 3


def test_reasoning_that_is_never_closed_is_all_reasoning(
    plain_tokenizer: Tokenizer,
) -> None:
    turn = turn_of(plain_tokenizer, tags=WRITTEN, inside=True)

    pieces = feed_all(turn, plain_tokenizer.encode("why </thi"))

    assert (text_of(pieces, "r"), text_of(pieces)) == ("why </thi", "")


def test_a_model_without_tags_shows_them(plain_tokenizer: Tokenizer) -> None:
    answer = "<think>x</think>"

    pieces = feed_all(turn_of(plain_tokenizer), plain_tokenizer.encode(answer))

    assert pieces == (Piece(answer, "t", "c"),)


def test_held_content_comes_before_the_reasoning_that_follows_it(
    byte_tokenizer: Tokenizer,
) -> None:
    turn = turn_of(byte_tokenizer, tags=token_tags(byte_tokenizer), stops=["beta"])

    pieces = feed_all(turn, byte_tokenizer.encode("be<think>x</think>ta"))

    assert [piece.text for piece in pieces] == ["be", "x", "ta"]


@pytest.mark.parametrize(
    ("reason", "shown"), [("length", "a\ufffd"), ("cancelled", "a")]
)
def test_half_a_character_at_the_end(
    byte_tokenizer: Tokenizer, reason: str, shown: str
) -> None:
    turn = turn_of(byte_tokenizer)
    delta = turn.feed(byte_tokenizer.encode("a🙂")[:-1], ["t"] * 4)

    rest = turn.finish(reason)

    assert text_of((*delta.pieces, *rest)) == shown


answers = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<|im_start|>", "be", "ta", "\n", "é", "🙂"]
    )
    | st.text(max_size=4),
    max_size=12,
).map("".join)
origins = st.sampled_from(typing.get_args(Kind))


@given(answer=answers, stops=st.sets(st.sampled_from(["beta", "ta", "é"])))
def test_how_cycles_cut_the_answer_changes_no_text_and_no_count(
    byte_tokenizer: Tokenizer, answer: str, stops: set[str]
) -> None:
    token_ids = byte_tokenizer.encode(answer)
    tags = token_tags(byte_tokenizer)
    whole = turn_of(byte_tokenizer, tags=tags, stops=sorted(stops))
    single = turn_of(byte_tokenizer, tags=tags, stops=sorted(stops))

    at_once = feed_all(whole, token_ids)
    one_by_one = [
        piece
        for token_id in token_ids
        for piece in single.feed([token_id], ["t"]).pieces
    ]
    one_by_one += single.finish("length")

    for channel in ("c", "r"):
        assert text_of(at_once, channel) == text_of(one_by_one, channel)
    assert whole.completion_tokens == single.completion_tokens
    assert whole.reasoning_tokens == single.reasoning_tokens


@given(answer=st.text(max_size=30), data=st.data())
def test_content_pieces_are_the_whole_decode_whatever_their_kinds(
    byte_tokenizer: Tokenizer, answer: str, data: st.DataObject
) -> None:
    token_ids = byte_tokenizer.encode_literal(answer)
    kinds = [data.draw(origins) for _ in token_ids]
    turn = turn_of(byte_tokenizer)

    delta = turn.feed(token_ids, kinds)
    pieces = (*delta.pieces, *turn.finish("length"))

    assert text_of(pieces) == answer
    assert all(piece.text for piece in pieces)
