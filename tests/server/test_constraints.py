# SPDX-License-Identifier: Apache-2.0
"""Answers of a given form, in the words of every dialect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_engine import PLAIN_TEMPLATE, Script, write_speaker
from server_kit import Running, until

from splashpy.protocol import Constraint
from splashpy.server.constraints import read_constraint
from splashpy.server.errors import ApiError
from splashpy.server.fields import Fields

SCHEMA = {"type": "object", "properties": {"ä": {"type": "integer"}}}
AS_SCHEMA = Constraint(kind="json_schema", text=json.dumps(SCHEMA, ensure_ascii=False))
AS_OBJECT = Constraint(kind="json_object")
FORMAT = {"type": "json_schema", "schema": SCHEMA}
TOOL = {"type": "function", "function": {"name": "look"}}
MESSAGES = [{"role": "user", "content": "Hi"}]
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
ANTHROPIC, RESPONSES = "/v1/messages", "/v1/responses"


def masked(server: Running) -> int:
    """Answers whose masks were timed, as Prometheus reads it."""
    text = server.get("/metrics").body.decode()
    return int(text.partition("constraint_mask_seconds_count ")[2].split()[0])


def token_of(server: Running, text: str) -> int:
    (token,) = server.post("/tokenize", {"content": text}).json["tokens"]
    return token


def response_format(**fields: Any) -> dict[str, Any]:
    return {"response_format": fields}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, None),
        (response_format(type="text"), None),
        (response_format(type="json_schema", json_schema=None), None),
        ({"grammar": "", "guided_regex": "", "json_schema": None}, None),
        (response_format(type="json_object"), AS_OBJECT),
        (response_format(type="json_object", schema={}), AS_OBJECT),
        (response_format(type="json_object", schema=SCHEMA), AS_SCHEMA),
        (response_format(type="json_schema", schema=SCHEMA), AS_SCHEMA),
        (
            response_format(
                type="json_schema", json_schema={"name": "x", "schema": SCHEMA}
            ),
            AS_SCHEMA,
        ),
        ({"json_schema": SCHEMA}, AS_SCHEMA),
        ({"guided_json": json.dumps(SCHEMA)}, AS_SCHEMA),
        ({"structured_outputs": {"json": SCHEMA}}, AS_SCHEMA),
        ({"structured_outputs": {"json_object": True}}, AS_OBJECT),
        ({"guided_regex": "a+"}, Constraint(kind="regex", text="a+")),
        (
            {"structured_outputs": {"choice": ["é", "b"]}},
            Constraint(kind="choice", text='["é", "b"]'),
        ),
        (
            {"grammar": 'root ::= "a"'},
            Constraint(kind="gbnf", text='root ::= "a"'),
        ),
        (
            {"guided_grammar": 'start: "a"'},
            Constraint(kind="lark", text='start: "a"'),
        ),
    ],
)
def test_every_way_to_ask_for_a_form_is_read(
    body: dict[str, Any], expected: Constraint | None
) -> None:
    assert read_constraint(Fields(body)) == expected


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (response_format(type="xml"), "response_format.type"),
        ({"response_format": "json"}, "response_format"),
        (
            response_format(type="json_schema", json_schema={"name": "x"}),
            "response_format.json_schema.schema",
        ),
        (response_format(type="json_schema"), "response_format.schema"),
        ({"json_schema": [1]}, "json_schema"),
        ({"guided_json": "[1]"}, "guided_json"),
        ({"guided_json": "{"}, "guided_json"),
        ({"grammar": 3}, "grammar"),
        ({"structured_outputs": {"choice": "a"}}, "structured_outputs.choice"),
        ({"structured_outputs": []}, "structured_outputs"),
        ({"guided_regex": "a", "json_schema": {}}, "json_schema"),
    ],
)
def test_a_form_of_the_wrong_form_is_refused_with_its_place(
    body: dict[str, Any], param: str
) -> None:
    with pytest.raises(ApiError) as caught:
        read_constraint(Fields(body))

    assert (caught.value.code, caught.value.param) == ("invalid_value", param)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": MESSAGES, "response_format": FORMAT}),
        (COMPLETION, {"prompt": "Hi", "guided_json": SCHEMA}),
        (RESPONSES, {"input": "Hi", "text": {"format": FORMAT}}),
        (ANTHROPIC, {"messages": MESSAGES, "output_config": {"format": FORMAT}}),
        (ANTHROPIC, {"messages": MESSAGES, "output_format": FORMAT}),
        ("/completion", {"prompt": "Hi", "json_schema": SCHEMA}),
        ("/infill", {"input_prefix": "Hi", "grammar": 'root ::= "{"'}),
    ],
)
def test_every_endpoint_hands_the_form_to_the_engine(
    server: Running, script: Script, path: str, body: dict[str, Any]
) -> None:
    assert server.post(path, body).status == 200

    (request,) = script.requests
    assert request.grammar is not None


def test_a_response_repeats_the_form_that_was_asked_for(server: Running) -> None:
    reply = server.post(RESPONSES, {"input": "Hi", "text": {"format": FORMAT}})

    assert reply.json["text"]["format"] == FORMAT


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": MESSAGES, "tools": [TOOL], "response_format": FORMAT}),
        (
            RESPONSES,
            {
                "input": "Hi",
                "tools": [{"type": "function", "name": "look"}],
                "text": {"format": FORMAT},
            },
        ),
    ],
)
def test_beside_tools_an_answer_of_a_given_form_may_be_a_call_instead(
    server: Running, script: Script, path: str, body: dict[str, Any]
) -> None:
    for choice in ("auto", "none", "required"):
        reply = server.post(path, {**body, "tool_choice": choice})
        assert reply.status == 200

    call, end = (token_of(server, text) for text in ("<tool_call>", "</think>"))
    free, none, forced = (request.grammar for request in script.requests)
    for grammar, allowed in ((free, True), (none, False), (forced, True)):
        assert grammar is not None
        grammar.consume([end])
        assert grammar.allows([call]) == [allowed]
    assert free is not None
    assert free.consume([call, call, 5]) == 3
    assert free.free(9)
    assert not free.finished


LOOK = {
    "type": "object",
    "properties": {"where": {"enum": ["here", "there"]}},
    "required": ["where"],
}
STRICT = {"type": "function", "name": "look", "parameters": LOOK, "strict": True}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": MESSAGES, "tools": [{**TOOL, "function": STRICT}]}),
        (CHAT, {"messages": MESSAGES, "functions": [STRICT]}),
        (RESPONSES, {"input": "Hi", "tools": [STRICT]}),
        (
            ANTHROPIC,
            {
                "messages": MESSAGES,
                "thinking": {"type": "enabled"},
                "tools": [{"name": "look", "input_schema": LOOK, "strict": True}],
            },
        ),
    ],
)
@pytest.mark.parametrize("form", [{}, {"json_schema": SCHEMA}], ids=["free", "form"])
def test_calls_of_a_strict_tool_keep_to_its_schema(
    server: Running, script: Script, path: str, body: dict[str, Any], form: Any
) -> None:
    """The model's marker begins a call; what follows is bound, and the rest is free."""
    if path in (RESPONSES, ANTHROPIC) and form:
        form = {"text" if path == RESPONSES else "output_config": {"format": FORMAT}}
    assert server.post(path, {**body, **form}).status == 200

    (request,) = script.requests
    grammar = request.grammar
    assert grammar is not None
    call, end = (token_of(server, text) for text in ("<tool_call>", "</think>"))
    assert grammar.consume([5, call, end, call]) == 4
    good, bad = (
        server.post(
            "/tokenize",
            {"content": f"\n<function=look>\n<parameter=where>\n{where}\n</parameter>"},
        ).json["tokens"]
        for where in ("here", "nowhere")
    )
    assert grammar.legal(good) == len(good)
    assert grammar.legal(bad) < len(bad)
    assert "strict" not in server.post("/apply-template", {**body}).body.decode()


def test_a_strict_tool_is_bound_where_its_call_begins_in_ordinary_text(
    serve: Any, script: Script, tmp_path: Path
) -> None:
    opener = "<atem:function_calls>"
    template = f"{{# {opener} #}}{{{{ tools }}}}{PLAIN_TEMPLATE}"
    server = serve(write_speaker(tmp_path / "model", template))
    tools = [{"type": "function", "function": STRICT}]
    body = {"messages": MESSAGES, "tools": tools}

    assert server.post(CHAT, body).status == 200
    both = server.post(CHAT, {**body, "response_format": FORMAT})

    grammar = script.requests[0].grammar
    assert grammar is not None
    for value, legal in (("here", True), ("nowhere", False)):
        call = f'I look.\n{opener}\n<atem:invoke name="look">\n'
        call += f'<atem:parameter name="where">{value}</atem:parameter>'
        ids = server.post("/tokenize", {"content": call}).json["tokens"]
        assert (grammar.legal(ids) == len(ids)) is legal
    assert both.status == 400
    assert "no token of its own" in both.json["error"]["message"]


@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize(
    ("path", "body", "choice"),
    [
        (
            CHAT,
            {"messages": MESSAGES, "reasoning_effort": "none"},
            {"type": "allowed_tools", "allowed_tools": {"tools": [TOOL]}},
        ),
        (
            RESPONSES,
            {"input": "Hi", "reasoning": {"effort": "none"}},
            {"type": "allowed_tools", "tools": [{"type": "function", "name": "look"}]},
        ),
    ],
)
def test_all_tools_are_shown_and_only_the_allowed_ones_are_called(
    server: Running,
    script: Script,
    path: str,
    body: dict[str, Any],
    choice: dict[str, Any],
    mode: str,
) -> None:
    (choice.get("allowed_tools") or choice)["mode"] = mode
    tools = [{"type": "function", "name": name} for name in ("look", "listen")]
    body = {**body, "tools": tools}
    assert server.post(path, body).status == 200
    assert server.post(path, {**body, "tool_choice": choice}).status == 200

    free, limited = script.requests
    shown = free.token_ids
    assert limited.token_ids[: len(shown)] == shown
    assert limited.grammar is not None
    if mode == "auto":
        limited.grammar.consume([5, token_of(server, "<tool_call>")])
        head = "\n<function="
        names = [(f"{head}look>\n", True), (f"{head}listen>\n", False)]
    else:  # the only name there is was written for the model
        names = [("</function>", True), ("listen>\n", False)]
    for text, legal in names:
        ids = server.post("/tokenize", {"content": text}).json["tokens"]
        assert (limited.grammar.legal(ids) == len(ids)) is legal


@pytest.mark.parametrize("names", [[], ["taste"]])
def test_a_choice_among_no_tools_is_refused(server: Running, names: list[str]) -> None:
    tools = [{"type": "function", "name": name} for name in names]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": tools}
    body = {"input": "Hi", "tools": [STRICT], "tool_choice": choice}

    reply = server.post(RESPONSES, body)

    assert (reply.status, reply.json["error"]["param"]) == (400, "tool_choice")


def test_a_strict_tool_no_grammar_can_hold_is_refused(
    server: Running, script: Script
) -> None:
    far = {"type": "object", "properties": {"a": {"$ref": "https://example.com/a"}}}
    function = {"name": "far", "parameters": far}
    for strict, status in ((True, 400), (False, 200)):
        tool = {"type": "function", "function": {**function, "strict": strict}}
        reply = server.post(CHAT, {"messages": MESSAGES, "tools": [tool]})
        assert reply.status == status

        if strict:
            error = reply.json["error"]
            assert (error["code"], error["param"]) == ("unsupported_schema", "tools")
            assert "far" in error["message"]
            assert script.requests == []


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_that_cannot_be_followed_is_refused_before_the_answer(
    server: Running, script: Script, *, stream: bool
) -> None:
    reply = server.post(
        CHAT,
        {
            "messages": MESSAGES,
            "stream": stream,
            "response_format": {
                "type": "json_schema",
                "schema": {"$ref": "https://example.com/schema.json"},
            },
        },
    )

    assert reply.status == 400
    assert reply.json["error"]["code"] == "unsupported_schema"
    assert "cannot be used" in reply.json["error"]["message"]
    assert reply.json["error"]["param"] == "response_format"
    assert script.requests == []


@pytest.mark.parametrize(
    ("form", "text", "valid"),
    [
        ({"type": "array", "uniqueItems": True}, "[1, 2]", True),
        ({"type": "array", "uniqueItems": True}, "[1, 1]", False),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "1", False),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "1.5", True),
        ({"type": "string", "pattern": "^(a+)+$"}, json.dumps("a" * 40 + "b"), True),
        ({"type": "object"}, "{}", True),
    ],
)
def test_an_answer_is_looked_at_for_what_no_grammar_can_say(
    server: Running, script: Script, form: dict[str, Any], text: str, valid: bool
) -> None:
    script.say(f"</think>{text}<|im_end|>")
    body = {"messages": MESSAGES, "json_schema": form}

    answer = server.post(CHAT, body).json

    assert answer["choices"][0]["message"]["content"] == text
    told = answer["splashpy"]["constraint"]
    assert told == {"used": True, "valid": valid, "mask_ms": 0.0}


def test_an_answer_that_is_cut_is_not_valid_and_a_free_one_says_nothing(
    server: Running, script: Script
) -> None:
    script.say("</think>{}<|im_end|>")
    body = {"messages": MESSAGES, "response_format": {"type": "json_object"}}
    before = masked(server)

    cut = server.post(CHAT, {**body, "max_tokens": 2}).json
    stopped = server.post(CHAT, {**body, "stop": "}"}).json
    whole = server.post(CHAT, {**body, "stream": True}).events
    free = server.post(CHAT, {"messages": MESSAGES}).json

    assert cut["splashpy"]["constraint"]["valid"] is False
    assert stopped["splashpy"]["constraint"]["valid"] is False
    assert whole[-2]["splashpy"]["constraint"]["valid"] is True
    assert "constraint" not in free["splashpy"]
    until(lambda: masked(server) == before + 3)
