# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities in every dialect, in line with the text.

The engine of these tests gives a token a hundredth of its id, below zero, and the first
tokens of the vocabulary as alternatives.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripted_engine import Said, Script
from server_kit import Reply, Running

MESSAGES = [{"role": "user", "content": "Hi"}]


def chat(server: Running, **fields: Any) -> Reply:
    body = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2, **fields}
    return server.post("/v1/chat/completions", body)


def spelled(entries: list[dict[str, Any]]) -> bytes:
    return b"".join(bytes(entry["bytes"]) for entry in entries)


def streamed(reply: Reply) -> tuple[str, list[dict[str, Any]]]:
    """Content and entries of a chat stream."""
    text, entries = "", []
    for event in reply.events[:-1]:
        for choice in event["choices"]:
            text += choice["delta"].get("content", "")
            entries += (choice["logprobs"] or {"content": []})["content"]
    return text, entries


def test_every_token_of_a_chat_has_its_number_and_its_bytes(
    server: Running, script: Script
) -> None:
    script.say("so</think>é!<|im_end|>")

    whole = chat(server).json["choices"][0]["logprobs"]
    text, entries = streamed(chat(server, stream=True))

    assert whole == {"content": entries, "refusal": None}
    assert text == "é!"
    assert spelled(entries).decode() == "so</think>é!"
    half = entries[3]
    assert (half["token"], half["bytes"]) == ("\ufffd", [0xC3])
    for entry in entries:
        (token,) = server.post("/tokenize", {"content": "!"}).json["tokens"]
        if entry["token"] == "!":
            assert entry["logprob"] == pytest.approx(-0.01 * token)
        numbers = [other["logprob"] for other in entry["top_logprobs"]]
        assert numbers == sorted(numbers, reverse=True)
        assert entry["logprob"] in numbers, "the token itself is among them"
        assert len(numbers) in (2, 3)


def test_nothing_is_said_of_tokens_where_nobody_asked(
    server: Running, script: Script
) -> None:
    plain = server.post("/v1/chat/completions", {"messages": MESSAGES}).json
    asked = chat(server, top_logprobs=None).json

    assert plain["choices"][0]["logprobs"] is None
    assert script.requests[0].logprobs is None
    assert script.requests[1].logprobs == 0
    assert asked["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("stop", "text", "tokens"),
    [
        ("cd", "ab", "ab"),
        ("bcde", "a", "a"),
        ("zz", "abcdef", "abcdef"),
        ("f", *2 * ["abcde"]),
    ],
)
def test_tokens_after_a_stop_string_are_never_told(
    server: Running, script: Script, stop: str, text: str, tokens: str, stream: bool
) -> None:
    script.say("</think>abcdef<|im_end|>")

    reply = chat(server, stop=stop, stream=stream)

    if stream:
        found, entries = streamed(reply)
    else:
        (choice,) = reply.json["choices"]
        found = choice["message"]["content"]
        entries = choice["logprobs"]["content"]
    assert found == text
    assert spelled(entries).decode() == "</think>" + tokens


def test_tokens_of_hidden_reasoning_stay_hidden(
    server: Running, script: Script
) -> None:
    script.say("secret</think>open<|im_end|>")

    (choice,) = chat(server, include_reasoning=False).json["choices"]

    assert spelled(choice["logprobs"]["content"]) == b"open"


def test_tokens_of_a_call_come_in_their_order(server: Running, script: Script) -> None:
    call = "<tool_call>\n<function=look>\n</function>\n</tool_call>"
    script.say(f"</think>{call}<|im_end|>")
    tool = {"type": "function", "function": {"name": "look"}}

    for stream in (False, True):
        reply = chat(server, tools=[tool], stream=stream)
        entries = (
            streamed(reply)[1]
            if stream
            else reply.json["choices"][0]["logprobs"]["content"]
        )
        assert spelled(entries).decode() == f"</think>{call}"


@pytest.mark.parametrize("ids", [False, True], ids=["text", "token ids"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_tells_where_in_its_text_each_token_begins(
    server: Running, script: Script, *, stream: bool, ids: bool
) -> None:
    script.say("éa<|im_end|>")
    prompt = "Ü<|im_start|>x"
    if ids:
        prompt = server.post("/tokenize", {"content": prompt}).json["tokens"]
    body = {"prompt": prompt, "echo": True, "logprobs": 1, "stream": stream}

    reply = server.post("/v1/completions", body)

    parts = reply.events[:-1] if stream else [reply.json]
    choices = [part["choices"][0] for part in parts]
    text = "".join(choice["text"] for choice in choices)
    told = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    found = {name: [x for each in told for x in each[name]] for name in told[0]}
    assert text == "Ü<|im_start|>xéa"
    assert found["tokens"][2:4] == ["<|im_start|>", "x"]
    assert found["tokens"][0] == "bytes:\\xc3"
    assert found["text_offset"] == [0, 0, 1, 13, 14, 14, 15]
    assert found["token_logprobs"][0] is None
    assert found["top_logprobs"][0] is None
    assert all(found["tokens"][n] in found["top_logprobs"][n] for n in range(1, 7))
    assert script.requests[0].prompt_logprobs == 1


def test_a_line_of_ollama_s_tells_of_its_tokens(serve: Any, script: Script) -> None:
    server = serve(ollama=True)
    script.say("hm</think>é!<|im_end|>")
    body = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 1}

    lines = server.post("/api/chat", body).body.decode().splitlines()
    whole = server.post("/api/chat", {**body, "stream": False}).json
    plain = server.post("/api/chat", {"messages": MESSAGES, "stream": False}).json

    told = [entry for line in lines for entry in json.loads(line).get("logprobs", [])]
    assert told == whole["logprobs"]
    assert spelled(told) == "hm</think>é!".encode()
    assert {len(entry["top_logprobs"]) for entry in told} <= {1, 2}
    assert "logprobs" not in plain


def test_the_best_of_some_answers_is_the_likeliest(
    server: Running, script: Script
) -> None:
    texts = ("c", "a", "b")  # in this vocabulary, a later letter is less likely
    script.answers = [Said((f"{text}<|im_end|>",)) for text in texts]

    answer = server.post("/v1/completions", {"prompt": "x", "best_of": 3, "n": 2}).json

    assert [choice["text"] for choice in answer["choices"]] == ["a", "b"]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert answer["choices"][0]["logprobs"] is None
    assert answer["usage"]["completion_tokens"] == 6


@pytest.mark.parametrize("stream", [False, True])
def test_llama_cpp_finds_ids_and_numbers(
    server: Running, script: Script, *, stream: bool
) -> None:
    script.say("ab<|im_end|>")

    reply = server.post("/completion", {"prompt": "x", "n_probs": 3, "stream": stream})

    parts = reply.events[:-1] if stream else [reply.json]
    entries = [e for part in parts for e in part["completion_probabilities"]]
    assert [entry["token"] for entry in entries] == ["a", "b"]
    for entry in entries:
        assert entry["logprob"] == pytest.approx(-0.01 * entry["id"])
        ids = [other["id"] for other in entry["top_logprobs"]]
        assert ids == [0, 1, 2, entry["id"]]
    if stream:
        assert spelled(reply.events[-1]["completion_probabilities"]) == b"ab"


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_tells_of_the_tokens_of_its_text_only(
    server: Running, script: Script, *, stream: bool
) -> None:
    script.say("why</think>yes<|im_end|>")
    body = {
        "input": "Hi",
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 1,
        "stream": stream,
    }

    reply = server.post("/v1/responses", body)

    response = reply.events[-1]["response"] if stream else reply.json
    (part,) = response["output"][-1]["content"]
    assert spelled(part["logprobs"]) == part["text"].encode() == b"yes"
    if stream:
        deltas = [
            entry
            for event in reply.events
            if event["type"] == "response.output_text.delta"
            for entry in event["logprobs"]
        ]
        assert deltas == part["logprobs"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (
            "/v1/chat/completions",
            {"logprobs": False, "top_logprobs": 3},
            "top_logprobs",
        ),
        (
            "/v1/chat/completions",
            {"logprobs": True, "top_logprobs": 21},
            "top_logprobs",
        ),
        ("/v1/chat/completions", {"logprobs": 3}, "logprobs"),
        ("/v1/responses", {"top_logprobs": -1}, "top_logprobs"),
    ],
)
def test_an_impossible_wish_for_numbers_is_refused(
    server: Running, script: Script, path: str, body: dict[str, Any], param: str
) -> None:
    reply = server.post(path, {"messages": MESSAGES, "input": "Hi", **body})

    assert reply.status == 400
    assert reply.json["error"]["param"] == param
    assert script.requests == []


def test_numbers_after_sampling_are_probabilities(
    server: Running, script: Script
) -> None:
    script.say("a<|im_end|>")
    body = {"prompt": "x", "n_probs": 2, "post_sampling_probs": True}

    answer = server.post("/completion", body).json
    streamed = server.post("/completion", {**body, "stream": True}).events

    assert script.requests[0].logprobs_drawn
    (token,) = answer["completion_probabilities"]
    assert token["token"] == "a"
    assert 0 < token["prob"] < 1
    assert "logprob" not in token
    top = [other["prob"] for other in token["top_probs"]]
    assert top[0] == 1.0
    assert top == sorted(top, reverse=True)
    assert streamed[0]["completion_probabilities"] == [token]
