# SPDX-License-Identifier: Apache-2.0
"""Messages of every shape clients send, in the one shape templates get."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from splashpy.dialogue.acceptance import Acceptance
from splashpy.dialogue.conversation import fit, normalise, normalise_tools
from splashpy.errors import UsageError


def one(**message: Any) -> dict[str, Any]:
    return normalise([message])[0]


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def system(content: str) -> dict[str, Any]:
    return {"role": "system", "content": content}


@pytest.mark.parametrize(
    ("given", "role"), [("developer", "system"), ("function", "tool")]
)
def test_roles_have_one_name_each(given: str, role: str) -> None:
    assert one(role=given, content="x")["role"] == role


@pytest.mark.parametrize("role", ["narrator", None, 7, ["user"]])
def test_an_unknown_role_is_refused_with_the_known_ones(role: Any) -> None:
    with pytest.raises(UsageError, match="message 1 has the role") as caught:
        normalise([{"role": role, "content": "x"}])
    assert "assistant" in caught.value.why


@pytest.mark.parametrize("messages", [[], ["hi"], [None]])
def test_a_conversation_of_no_messages_is_refused(messages: list[Any]) -> None:
    with pytest.raises(UsageError):
        normalise(messages)


def test_no_content_is_empty_content() -> None:
    assert one(role="assistant", content=None) == assistant("")
    assert one(role="assistant") == assistant("")


def test_text_parts_are_joined_as_they_are() -> None:
    parts = [{"type": "text", "text": ""}, {"type": "input_text", "text": "a"}, "b"]

    assert one(role="user", content=parts)["content"] == "ab"


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ({"type": "image_url", "image_url": {"url": "x"}}, "image_url"),
        ({"type": "text"}, "text"),
        ({"type": ["text"]}, "text"),
        ({}, "None"),
        (7, "int"),
    ],
)
def test_a_part_that_is_no_text_is_refused_by_its_type(part: Any, name: str) -> None:
    with pytest.raises(UsageError, match=name):
        one(role="user", content=[part])


@pytest.mark.parametrize("content", [7, {"text": "x"}])
def test_content_that_is_no_text_is_refused(content: Any) -> None:
    with pytest.raises(UsageError, match="content of message 1"):
        one(role="user", content=content)


def call(arguments: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"id": "c1", "type": "function", "function": function}


@pytest.mark.parametrize(
    ("given", "arguments"),
    [('{"a": 1}', {"a": 1}), ({"a": 1}, {"a": 1}), ("", {}), (None, {})],
)
def test_arguments_of_a_call_are_an_object(given: Any, arguments: Any) -> None:
    message = one(role="assistant", content=None, tool_calls=[call(given)])

    assert message["tool_calls"] == [call(arguments)]


@pytest.mark.parametrize("given", ['{"a": ', "[1]", "no json", "[" * 100_000])
def test_a_call_without_object_arguments_stays_in_the_text(given: str) -> None:
    message = one(role="assistant", content="Hm.", tool_calls=[call(given)])

    assert message == assistant(f"Hm.\n\nIncomplete tool call: f {given}")


def test_older_shapes_of_calls_are_understood() -> None:
    wanted = [{"type": "function", "function": {"name": "f", "arguments": {}}}]
    flat = {"name": "f", "arguments": "{}"}

    assert one(role="assistant", function_call=flat)["tool_calls"] == wanted
    assert one(role="assistant", tool_calls=[flat])["tool_calls"] == wanted


@pytest.mark.parametrize("calls", [["f"], [{"function": None}], 7])
def test_a_call_of_nothing_is_refused(calls: Any) -> None:
    with pytest.raises(UsageError, match="tool call"):
        one(role="assistant", tool_calls=calls)


def test_no_calls_are_no_field() -> None:
    assert one(role="assistant", content="x", tool_calls=[]) == assistant("x")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "reasoning_text"])
def test_reasoning_has_one_name(name: str) -> None:
    message = one(role="assistant", content="x", **{name: "why"})

    assert message == {**assistant("x"), "reasoning_content": "why"}


def test_fields_that_are_none_are_absent() -> None:
    assert one(role="user", content="x", name=None) == user("x")


def test_system_messages_at_the_beginning_become_one() -> None:
    messages = normalise(
        [system("a"), {"role": "developer", "content": "b"}, user("c")]
    )

    assert messages == [system("a\n\nb"), user("c")]


def test_no_tools_and_an_empty_list_are_the_same() -> None:
    assert normalise_tools([]) is None
    assert normalise_tools(None) is None
    with pytest.raises(UsageError, match="tool 2"):
        normalise_tools([{}, "f"])


LATE = [user("a"), assistant("b"), system("c"), user("d")]


def test_a_late_system_message_stays_where_the_template_takes_it() -> None:
    assert fit(LATE, Acceptance()) == LATE


def test_a_refused_late_system_message_becomes_a_reminder_at_its_place() -> None:
    reminder = "<system-reminder>\nc\n</system-reminder>"

    assert fit(LATE, Acceptance(system_later=False)) == [
        user("a"),
        assistant("b"),
        user(reminder),
        user("d"),
    ]
    assert fit([user("a"), system("c")], Acceptance(system_later=False)) == [
        user(f"a\n\n{reminder}")
    ]


def test_turns_stay_alternating_where_the_template_wants_it() -> None:
    fitted = fit(LATE, Acceptance(system_later=False, repeated_user=False))

    assert [message["role"] for message in fitted] == ["user", "assistant", "user"]
    assert fitted[2]["content"].endswith("</system-reminder>\n\nd")


def test_a_refused_system_message_begins_the_first_user_turn() -> None:
    refusing = Acceptance(system_first=False)

    assert fit([system("s"), user("a")], refusing) == [user("s\n\na")]
    assert fit([system("s")], refusing) == [user("s")]
    assert fit([system("s"), assistant("a")], refusing) == [user("s"), assistant("a")]


@pytest.mark.parametrize("system_later", [True, False])
@pytest.mark.parametrize("repeated_user", [True, False])
def test_more_turns_never_change_the_text_before_them(
    system_later: bool, repeated_user: bool
) -> None:
    acceptance = Acceptance(system_later=system_later, repeated_user=repeated_user)
    turns = [*LATE, assistant("e"), user("f"), system("g"), system("h"), user("i")]

    texts = [
        "|".join(item["content"] for item in fit(turns[: n + 1], acceptance))
        for n in range(len(turns))
    ]

    assert all(longer.startswith(text) for text, longer in pairwise(texts))
