# SPDX-License-Identifier: Apache-2.0
"""Stop strings: found wherever the text was cut, and never partly shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.dialogue.stops import StopMatcher, StopResult
from splashpy.errors import UsageError

letters = st.text(alphabet="ab", max_size=12)
stop_sets = st.lists(st.text(alphabet="ab", min_size=1, max_size=4), max_size=3)


def first_stop(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The text before the stop string that is complete first; the longest of these."""
    for end in range(1, len(text) + 1):
        done = [stop for stop in stops if text[:end].endswith(stop)]
        if done:
            stop = max(done, key=len)
            return text[: end - len(stop)], stop
    return text, None


def in_pieces(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    shown = ""
    for piece in pieces:
        result = matcher.feed(piece)
        shown += result.text
        if result.matched is not None:
            return shown, result.matched
    return shown + matcher.flush(), None


def test_a_stop_string_over_three_pieces_is_cut_out_whole() -> None:
    matcher = StopMatcher(["beta gamma"])

    assert matcher.feed("alpha be") == StopResult("alpha ")
    assert matcher.feed("ta ga") == StopResult("")
    assert matcher.feed("mma delta") == StopResult("", "beta gamma", " delta")


def test_a_beginning_that_leads_nowhere_is_released() -> None:
    matcher = StopMatcher(["END"])

    assert matcher.feed("an E").text == "an "
    assert matcher.feed("NTRY").text == "ENTRY"


def test_what_is_held_at_the_end_is_flushed_once() -> None:
    matcher = StopMatcher(["###"])
    matcher.feed("a ##")

    assert matcher.flush() == "##"
    assert matcher.flush() == ""


def test_the_stop_complete_first_wins_even_inside_a_longer_one() -> None:
    assert in_pieces(["xabcd"], ["abcd", "c"]) == ("xab", "c")


def test_of_two_complete_together_the_longer_wins() -> None:
    assert in_pieces(["xabc"], ["c", "bc"]) == ("xa", "bc")


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        StopMatcher(["a", ""])


@given(pieces=st.lists(letters, max_size=6), stops=stop_sets)
def test_any_cut_of_the_text_gives_what_a_search_of_the_whole_gives(
    pieces: list[str], stops: list[str]
) -> None:
    assert in_pieces(pieces, stops) == first_stop("".join(pieces), stops)


@given(pieces=st.lists(letters, max_size=6), stops=stop_sets)
def test_no_more_than_a_possible_beginning_is_held_back(
    pieces: list[str], stops: list[str]
) -> None:
    matcher = StopMatcher(stops)
    shown = text = ""
    for piece in pieces:
        result = matcher.feed(piece)
        if result.matched is not None:
            return
        text, shown = text + piece, shown + result.text
        held = text[len(shown) :]
        assert not held or any(stop.startswith(held) for stop in stops)
