# SPDX-License-Identifier: Apache-2.0
"""OpenAI Responses: items, events, memory."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from scripted_engine import Said, Script
from server_kit import PATIENCE, THOUGHT, Reply, Running

from splashpy.errors import ModelResultError
from splashpy.server.errors import ApiError
from splashpy.server.response_items import ToolNames
from splashpy.server.response_store import ResponseStore

CALL = (
    "<tool_call>\n<function={}>\n<parameter=cmd>\nls\n</parameter>\n"
    "</function>\n</tool_call>"
)
TOOLS = [
    {
        "type": "function",
        "name": "run",
        "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}},
        "strict": False,
    },
    {
        "type": "namespace",
        "name": "files",
        "tools": [{"type": "function", "name": "list", "parameters": {}}],
    },
    {"type": "web_search"},
    {"type": "custom", "name": "patch", "format": {"type": "text"}},
]


def ask(server: Running, **fields: Any) -> Reply:
    return server.post("/v1/responses", {"model": "local", "input": "hi", **fields})


def decoded(server: Running, script: Script) -> str:
    tokens = list(script.requests[-1].token_ids)
    return server.post("/detokenize", {"tokens": tokens}).json["content"]


def test_a_response_has_its_items_in_order(server: Running, script: Script) -> None:
    script.say(f"Look.</think>Listing.{CALL.format('files__list')}<|im_end|>")

    answer = ask(server, tools=TOOLS).json

    assert answer["object"] == "response"
    assert answer["status"] == "completed"
    reasoning, message, call = answer["output"]
    assert reasoning["summary"] == [{"type": "summary_text", "text": "Look."}]
    assert message["content"][0]["text"] == "Listing."
    assert (call["namespace"], call["name"]) == ("files", "list")
    assert call["arguments"] == '{"cmd":"ls"}'
    assert call["call_id"].startswith("call_")
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["output_tokens_details"]["reasoning_tokens"] == 5


def test_a_stream_is_the_sequence_clients_expect(
    server: Running, script: Script
) -> None:
    script.say(f"Look.</think>{CALL.format('run')}<|im_end|>", block=100)

    reply = ask(server, tools=TOOLS, stream=True)

    events = reply.events
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    names = [e["type"].removeprefix("response.") for e in events]
    collapsed = [n for i, n in enumerate(names) if i == 0 or names[i - 1] != n]
    assert collapsed == [
        "created",
        "in_progress",
        *THOUGHT,
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    done = [e["item"] for e in events if e["type"].endswith("output_item.done")]
    assert done == events[-1]["response"]["output"]
    assert done[1]["arguments"] == '{"cmd":"ls"}'
    deltas = [e["delta"] for e in events if e["type"].endswith("arguments.delta")]
    assert "".join(deltas) == '{"cmd":"ls"}'
    assert "[DONE]" not in reply.body.decode()


def test_text_is_streamed_within_its_part(server: Running, script: Script) -> None:
    script.say("</think>One two<|im_end|>")

    events = ask(server, stream=True).events

    names = [e["type"].removeprefix("response.") for e in events]
    assert names[2:4] == ["output_item.added", "content_part.added"]
    assert names[-4:] == [
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    text = "".join(e["delta"] for e in events if e["type"].endswith("text.delta"))
    assert (
        text == "One two" == events[-1]["response"]["output"][0]["content"][0]["text"]
    )


def test_a_cut_answer_is_incomplete(server: Running, script: Script) -> None:
    script.say("</think>and so on and so on")

    answer = ask(server, max_output_tokens=5).json

    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    last = ask(server, max_output_tokens=5, stream=True).events[-1]
    assert last["type"] == "response.incomplete"


def test_an_agent_s_history_is_taken(server: Running, script: Script) -> None:
    items = [
        {"type": "message", "role": "developer", "content": "Be an agent."},
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "list"}],
            "id": "msg_1",
        },
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "I list."}],
            "content": None,
            "encrypted_content": None,
        },
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "list",
            "namespace": "files",
            "arguments": '{"cmd": "ls"}',
        },
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [{"type": "input_text", "text": "a.py"}],
        },
        {"type": "web_search_call", "id": "ws_1"},
        {"type": "message", "role": "user", "content": "and?"},
    ]

    reply = ask(
        server,
        input=items,
        tools=TOOLS,
        tool_choice="auto",
        parallel_tool_calls=True,
        reasoning={"summary": "auto"},
        store=False,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="x",
        client_metadata={"a": "b"},
        stream=True,
    )

    assert reply.status == 200
    text = decoded(server, script)
    assert "Be an agent." in text
    assert "<think>\nI list.\n</think>" in text
    assert "<function=files__list>" in text
    assert "a.py" in text
    assert "web_search" not in text


def test_the_warm_up_of_an_agent_is_answered(server: Running, script: Script) -> None:
    script.say("x")

    assert ask(server, input="", max_output_tokens=1).status == 200


def test_an_answer_is_remembered_until_it_is_forgotten(
    server: Running, script: Script
) -> None:
    script.say("</think>Paris.<|im_end|>")
    first = ask(server, input="Capital?", instructions="Be brief.").json

    second = ask(server, input="And the river?", previous_response_id=first["id"])

    text = decoded(server, script)
    assert text.index("Capital?") < text.index("Paris.") < text.index("river")
    assert "Be brief." not in text
    assert second.json["previous_response_id"] == first["id"]
    kept = server.get(f"/v1/responses/{first['id']}")
    assert kept.json["id"] == first["id"]
    gone = server.request("DELETE", f"/v1/responses/{first['id']}")
    assert gone.json["deleted"] is True
    assert server.get(f"/v1/responses/{first['id']}").status == 404
    again = ask(server, previous_response_id=first["id"])
    assert again.status == 400
    assert again.json["error"]["code"] == "previous_response_not_found"


def test_what_shall_not_be_stored_is_not(server: Running) -> None:
    answer = ask(server, store=False).json

    assert server.get(f"/v1/responses/{answer['id']}").status == 404


def test_the_store_forgets_the_oldest_first() -> None:
    store = ResponseStore(limit=400)
    for number in range(4):
        store.put([{"text": "x" * 100}], {"id": f"r{number}"})

    assert store.get("r3")["id"] == "r3"
    with pytest.raises(ApiError):
        store.history("r0")


def test_a_long_name_of_a_tool_is_shortened_and_found_again() -> None:
    names = ToolNames()

    flat = names.flat("list" * 20, "space")

    assert len(flat) == 64
    assert names.original(flat) == {"name": "list" * 20, "namespace": "space"}
    assert names.original("plain") == {"name": "plain"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": [5]}, "input[0]"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].type",
        ),
    ],
)
def test_an_impossible_request_is_refused_with_its_place(
    server: Running, fields: dict[str, Any], param: str
) -> None:
    reply = ask(server, **fields)

    assert reply.status == 400
    assert reply.json["error"]["param"] == param


def test_an_error_in_the_middle_fails_the_response(
    server: Running, script: Script
) -> None:
    script.answers = [Said(("</think>begin", ModelResultError("not a number")))]

    last = ask(server, stream=True).events[-1]

    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["code"] == "internal_error"


def test_silence_is_filled_with_real_events(serve: Any, script: Script) -> None:
    told = threading.Event()
    script.answers = [
        Said(("</think>one", lambda: told.wait(PATIENCE), " two<|im_end|>")),
    ]
    server = serve(keepalive_seconds=0.05)

    def heard(answer: bytes) -> None:
        if answer.count(b'"delta":""') > 2:
            told.set()

    body = {"model": "local", "input": "hi", "stream": True}
    events = server.listen("/v1/responses", body, heard).events

    empty = [e for e in events if e["type"].endswith("text.delta") and not e["delta"]]
    assert len(empty) > 2
    assert [e["sequence_number"] for e in events] == list(range(len(events)))


def test_counting_is_what_generating_reads(server: Running, script: Script) -> None:
    count = server.post("/v1/responses/input_tokens", {"input": "hi"}).json
    ask(server)

    assert count["input_tokens"] == len(script.requests[0].token_ids)
