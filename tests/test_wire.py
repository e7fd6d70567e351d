# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import json
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy import wire
from splashpy.protocol import Command, Cycle, Event, Generate, Hello, Piece, Sampling
from splashpy.wire import command_from_line, event_from_line, to_line

KINDS = [*typing.get_args(Command), *typing.get_args(Event)]
SIMPLE = st.one_of(st.integers(-9, 9), st.text(max_size=5), st.booleans())


def values(hint: Any) -> st.SearchStrategy:
    """Any value a field of this type may hold."""
    known = {
        int: st.integers(-(2**53), 2**53),
        float: st.floats(allow_nan=False, allow_infinity=False),
        str: st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12),
        bool: st.booleans(),
    }
    if hint in known:
        return known[hint]
    if hint is Piece:
        return st.builds(
            Piece, known[str], st.sampled_from("atl"), st.sampled_from("crx")
        )
    origin, arms = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return st.sampled_from(arms)
    if origin is dict:
        return st.dictionaries(known[str], SIMPLE, max_size=3)
    if origin is tuple and arms[-1] is Ellipsis:
        return st.lists(values(arms[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arms))
    if type(None) in arms:
        return st.one_of(*[st.none() if a is type(None) else values(a) for a in arms])
    return st.deferred(lambda: messages(hint))


def messages(kind: type) -> st.SearchStrategy:
    return st.builds(
        kind, **{name: values(hint) for name, hint in wire._hints(kind).items()}
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_message_survives_the_line(kind: type) -> None:
    read = command_from_line if hasattr(kind, "op") else event_from_line

    @given(messages(kind))
    def check(message: Any) -> None:
        line = to_line(message)
        assert line.count(b"\n") == 1
        assert line.endswith(b"\n")
        assert read(line) == message

    check()


@given(st.data())
def test_a_damaged_line_is_refused_and_does_no_harm(
    data: st.DataObject,
) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    line = to_line(data.draw(messages(kind)))
    cut = data.draw(st.integers(0, len(line) - 2))
    noise = data.draw(st.binary(max_size=8))
    for damaged in (line[:cut], noise, line[:cut] + noise + line[cut:]):
        for read in (command_from_line, event_from_line):
            with contextlib.suppress(ValueError):
                read(damaged)


def test_unknown_fields_and_events_are_ignored() -> None:
    assert command_from_line('{"op":"hello","proto":1,"mood":"good"}') == Hello()
    assert event_from_line('{"ev":"weather","rain":true}') is None


@pytest.mark.parametrize(
    ("line", "needle"),
    [
        ("[1]", "JSON object"),
        ('{"op":"dance"}', "unknown command 'dance'"),
        ('{"op":"generate"}', "id"),
        ('{"op":"generate","id":7}', "Generate.id must be str, got 7"),
        ('{"op":"ping","n":true}', "Ping.n must be int, got True"),
        (
            '{"op":"generate","id":"a","sampling":{"temperature":"hot"}}',
            "Sampling.temperature must be float",
        ),
        (
            '{"op":"generate","id":"a","sampling":{"logit_bias":[[1]]}}',
            "needs 2 items, got 1",
        ),
    ],
)
def test_a_wrong_line_is_refused_with_the_field(line: str, needle: str) -> None:
    with pytest.raises(ValueError, match=needle.replace("[", r"\[")):
        command_from_line(line)


def test_whole_numbers_may_stand_for_decimal_ones() -> None:
    line = '{"op":"generate","id":"a","sampling":{"temperature":1}}'
    command = command_from_line(line)
    assert isinstance(command, Generate)
    assert command.sampling == Sampling(temperature=1.0)


def test_a_lone_surrogate_cannot_break_the_line() -> None:
    cycle = Cycle(
        id="a",
        i=1,
        drafted=0,
        accepted=0,
        committed=1,
        draft_ms=0.0,
        verify_ms=0.0,
        pieces=(Piece("\ud83d", "t", "c"),),
    )
    assert json.loads(to_line(cycle))["pieces"][0][0] == "?"
