# SPDX-License-Identifier: Apache-2.0
"""One answer in every dialect: the same text, calls, ending and counts.

Each dialect is read the way its clients read it, as a stream and as a whole.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from server_kit import Running, Said, Script, until

from splashpy.errors import ModelResultError

HI = [{"role": "user", "content": "hi"}]
CALL = (
    "<tool_call>\n<function=look>\n<parameter=where>\nhere\n</parameter>\n"
    "</function>\n</tool_call>"
)
SCHEMA = {"type": "object", "properties": {"where": {"type": "string"}}}
FUNCTION = {"name": "look", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALLED = ("look", {"where": "here"})


@dataclass
class Heard:
    """What a client makes of an answer.

    ``counts``: tokens of the prompt, those of it that were cached (None where the
    dialect does not say), tokens of the answer.
    """

    reasoning: str = ""
    text: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    ending: str = ""
    counts: tuple[int, int | None, int] = (0, 0, 0)
    quiet: int = 0


def frames(body: bytes) -> list[Any]:
    """The data of events; each must be one line behind ``data: ``."""
    found = []
    for frame in body.decode().split("\n\n")[:-1]:
        *names, last = frame.split("\n")
        assert last.startswith("data: ")
        text = last.removeprefix("data: ")
        value = text if text == "[DONE]" else json.loads(text)
        if names:
            assert names == [f"event: {value['type']}"]
        found.append(value)
    return found


# --- Chat Completions -----------------------------------------------------------------


def openai_counts(usage: dict[str, Any]) -> tuple[int, int, int]:
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return usage["prompt_tokens"], cached, usage["completion_tokens"]


def hear_chat(body: bytes) -> Heard:
    heard, arguments = Heard(), {}
    *events, last = frames(body)
    assert last == "[DONE]"
    for event in events:
        if "error" in event:
            heard.ending = "error"
            continue
        if not event["choices"]:
            heard.counts = openai_counts(event["usage"])
            timings = event["timings"]
            total = sum(timings[n] for n in ("prompt_n", "cache_n", "predicted_n"))
            assert total == event["usage"]["total_tokens"]
            continue
        (choice,) = event["choices"]
        delta = choice["delta"]
        heard.ending = choice["finish_reason"] or heard.ending
        heard.quiet += not delta and not choice["finish_reason"]
        heard.reasoning += delta.get("reasoning_content", "")
        heard.text += delta.get("content", "")
        for call in delta.get("tool_calls", ()):
            name, text = arguments.get(call["index"], ("", ""))
            function = call["function"]
            name = function.get("name", name)
            arguments[call["index"]] = (name, text + function["arguments"])
    if heard.ending == "tool_calls":
        heard.calls = [(name, json.loads(text)) for name, text in arguments.values()]
    return heard


def hear_whole_chat(answer: Any) -> Heard:
    (choice,) = answer["choices"]
    message = choice["message"]
    functions = [call["function"] for call in message.get("tool_calls", ())]
    return Heard(
        message.get("reasoning_content", ""),
        message["content"] or "",
        [(f["name"], json.loads(f["arguments"])) for f in functions],
        choice["finish_reason"],
        openai_counts(answer["usage"]),
    )


# --- Responses ------------------------------------------------------------------------


def hear_response(body: bytes) -> Heard:
    events = frames(body)
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    last = events[-1]
    kind = last["type"].removeprefix("response.")
    if kind == "failed":
        return Heard(ending="error")
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert done == last["response"]["output"]
    heard = hear_whole_response(last["response"])
    for delta, whole in (
        ("reasoning_summary_text.delta", heard.reasoning),
        ("output_text.delta", heard.text),
    ):
        pieces = [e["delta"] for e in events if e["type"] == f"response.{delta}"]
        assert "".join(pieces) == whole
        heard.quiet += pieces.count("")
    heard.quiet += sum(e["type"] == "response.in_progress" for e in events) - 1
    return heard


def hear_whole_response(answer: Any) -> Heard:
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    heard = Heard(ending="stop")
    heard.counts = (
        usage["input_tokens"],
        usage["input_tokens_details"]["cached_tokens"],
        usage["output_tokens"],
    )
    for item in answer["output"]:
        if item["type"] == "reasoning":
            heard.reasoning += "".join(part["text"] for part in item["summary"])
        elif item["type"] == "message":
            heard.text += "".join(part["text"] for part in item["content"])
        elif item["status"] == "completed":
            heard.calls.append((item["name"], json.loads(item["arguments"])))
            heard.ending = "tool_calls"
    if answer["status"] == "incomplete":
        heard.ending = "length"
    return heard


# --- Messages -------------------------------------------------------------------------

ENDINGS = {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls"}


def anthropic_counts(usage: dict[str, Any]) -> tuple[int, int, int]:
    cached = usage["cache_read_input_tokens"]
    return usage["input_tokens"] + cached, cached, usage["output_tokens"]


def hear_messages(body: bytes) -> Heard:
    heard = Heard()
    blocks: list[tuple[dict[str, Any], str]] = []
    for event in frames(body):
        kind = event["type"]
        heard.quiet += kind == "ping"
        if kind == "error":
            heard.ending = "error"
        elif kind == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append((event["content_block"], ""))
        elif kind == "content_block_delta":
            delta = event["delta"]
            block, text = blocks[event["index"]]
            keys = ("thinking", "text", "partial_json")
            piece = next((delta[key] for key in keys if key in delta), "")
            blocks[event["index"]] = (block, text + piece)
        elif kind == "message_delta":
            heard.ending = ENDINGS[event["delta"]["stop_reason"]]
            heard.counts = anthropic_counts(event["usage"])
    for block, text in blocks:
        if block["type"] == "thinking":
            heard.reasoning += text
        elif block["type"] == "text":
            heard.text += text
        elif heard.ending == "tool_calls":
            heard.calls.append((block["name"], json.loads(text)))
    return heard


def hear_whole_message(answer: Any) -> Heard:
    heard = Heard(ending=ENDINGS[answer["stop_reason"]])
    heard.counts = anthropic_counts(answer["usage"])
    for block in answer["content"]:
        if block["type"] == "thinking":
            heard.reasoning += block["thinking"]
        elif block["type"] == "text":
            heard.text += block["text"]
        else:
            heard.calls.append((block["name"], block["input"]))
    return heard


# --- Ollama ---------------------------------------------------------------------------


def hear_ollama(body: bytes) -> Heard:
    heard = Heard()
    objects = [json.loads(text) for text in body.splitlines()]
    for item in objects:
        if "error" in item:
            heard.ending = "error"
            return heard
        message = item["message"]
        heard.quiet += message == {"role": "assistant", "content": ""}
        heard.reasoning += message.get("thinking", "")
        heard.text += message["content"]
        for call in message.get("tool_calls", ()):
            function = call["function"]
            heard.calls.append((function["name"], function["arguments"]))
    last = objects[-1]
    heard.quiet -= 1  # the last line has no text either
    heard.ending = "tool_calls" if heard.calls else last["done_reason"]
    heard.counts = (last["prompt_eval_count"], None, last["eval_count"])
    return heard


def hear_whole_ollama(answer: Any) -> Heard:
    return hear_ollama(json.dumps(answer).encode())


@dataclass(frozen=True)
class Dialect:
    path: str
    hear: Callable[[bytes], Heard]
    hear_whole: Callable[[Any], Heard]
    body: dict[str, Any]
    budget: str

    def ask(self, limit: int | None, *, stream: bool) -> dict[str, Any]:
        budget: dict[str, Any] = {} if limit is None else {self.budget: limit}
        if self.budget == "num_predict":
            budget = {"options": budget}
        return {**self.body, **budget, "stream": stream}


DIALECTS = {
    "chat": Dialect(
        "/v1/chat/completions",
        hear_chat,
        hear_whole_chat,
        {
            "messages": HI,
            "tools": TOOLS,
            "stream_options": {"include_usage": True},
        },
        "max_tokens",
    ),
    "responses": Dialect(
        "/v1/responses",
        hear_response,
        hear_whole_response,
        {"input": "hi", "tools": [{"type": "function", **FUNCTION}]},
        "max_output_tokens",
    ),
    "messages": Dialect(
        "/v1/messages",
        hear_messages,
        hear_whole_message,
        {
            "messages": HI,
            "tools": [{"name": "look", "input_schema": SCHEMA}],
            "thinking": {"type": "adaptive"},
        },
        "max_tokens",
    ),
    "ollama": Dialect(
        "/api/chat",
        hear_ollama,
        hear_whole_ollama,
        {"messages": HI, "tools": TOOLS},
        "num_predict",
    ),
}
SPOKEN: dict[str, tuple[str, int | None, Heard]] = {
    "text": ("</think>Paris é🙂.<|im_end|>", None, Heard("", "Paris é🙂.", [], "stop")),
    "reasoning and text": (
        "Think.</think>\n\nParis.<|im_end|>",
        None,
        Heard("Think.", "Paris.", [], "stop"),
    ),
    "reasoning only": ("Think.<|im_end|>", None, Heard("Think.", "", [], "stop")),
    "one call": (
        f"Look.</think>{CALL}<|im_end|>",
        None,
        Heard("Look.", "", [CALLED], "tool_calls"),
    ),
    "two calls after text": (
        f"</think>I look.\n{CALL}\n{CALL}<|im_end|>",
        None,
        Heard("", "I look.", [CALLED, CALLED], "tool_calls"),
    ),
    "a call that was cut": (
        f"</think>{CALL}",
        41,
        Heard(
            "", "<tool_call>\n<function=look>\n<parameter=where>\nhere", [], "length"
        ),
    ),
    "nothing": ("</think><|im_end|>", None, Heard("", "", [], "stop")),
}


@pytest.fixture(scope="module")
def own(speaker: Any, start: Any) -> Iterator[Running]:
    server = start(speaker, ollama=True, keepalive_seconds=0.05)
    yield server.wait_ready()
    server.__exit__()
    assert server.faults == []


@pytest.fixture
def opened(own: Running, script: Script) -> Iterator[Running]:
    yield own
    until(lambda: own.endpoint.active == 0)


@pytest.mark.parametrize("spoken", SPOKEN)
def test_an_answer_is_the_same_in_every_dialect_and_in_both_forms(
    opened: Running, script: Script, spoken: str
) -> None:
    text, limit, expected = SPOKEN[spoken]
    prompts = set()
    for name, dialect in DIALECTS.items():
        script.say(text, cached=3)

        streamed = opened.post(dialect.path, dialect.ask(limit, stream=True))
        whole = opened.post(dialect.path, dialect.ask(limit, stream=False))

        heard = dialect.hear(streamed.body)
        prompts |= {request.token_ids for request in script.requests}
        prompt, cached, answer = heard.counts
        assert dialect.hear_whole(whole.json).counts == heard.counts, name
        assert prompt == len(script.requests[-1].token_ids), name
        assert cached in (None, 3), name
        assert answer == tokens_of(opened, text, limit), name
        for found in (heard, dialect.hear_whole(whole.json)):
            found.counts, found.quiet = (0, 0, 0), 0
            assert found == expected, name
    assert len(prompts) == 1


def tokens_of(server: Running, text: str, limit: int | None) -> int:
    tokens = server.post("/tokenize", {"content": text}).json["tokens"]
    return min(len(tokens), limit or len(tokens))


@pytest.mark.parametrize("name", DIALECTS)
def test_an_error_in_the_middle_is_told_in_every_dialect(
    opened: Running, script: Script, name: str
) -> None:
    dialect = DIALECTS[name]
    script.say("Hm.</think>Begin", ModelResultError("not a number"))

    streamed = opened.post(dialect.path, dialect.ask(None, stream=True))
    whole = opened.post(dialect.path, dialect.ask(None, stream=False))

    assert dialect.hear(streamed.body).ending == "error"
    assert whole.status == 500
    assert "error" in whole.json


@pytest.mark.parametrize("when", ["before the first token", "between two tokens"])
@pytest.mark.parametrize("name", DIALECTS)
def test_silence_is_filled_and_changes_nothing(
    opened: Running,
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    when: str,
) -> None:
    monkeypatch.setattr("splashpy.server.exchange._HEADERS_AFTER", 0.05)
    dialect, go_on = DIALECTS[name], threading.Event()

    def wait() -> None:
        assert go_on.wait(30)

    if when == "before the first token":
        script.answers = [Said(("Hm.</think>One two<|im_end|>",), prefill=wait)]
    else:
        script.say("Hm.</think>One", wait, " two<|im_end|>")
    link = http.client.HTTPConnection("127.0.0.1", opened.port, timeout=30)
    body = json.dumps(dialect.ask(None, stream=True)).encode()
    link.request("POST", dialect.path, body, {"Content-Type": "application/json"})
    received, reply = b"", link.getresponse()
    # The engine goes on only when several frames of silence have arrived.
    while quiet_frames(dialect, received) < 3:
        line = reply.readline()
        assert line, received
        received += line
    go_on.set()
    received += reply.read()
    link.close()

    heard = dialect.hear(received)

    assert heard.quiet >= 3
    assert (heard.reasoning, heard.text, heard.ending) == ("Hm.", "One two", "stop")


def quiet_frames(dialect: Dialect, received: bytes) -> int:
    """How many frames of silence there are in the beginning of a stream."""
    if dialect.path == "/api/chat":
        return received.count(b'"content":""}')
    marks = {
        "/v1/chat/completions": (b'"delta":{},',),
        "/v1/responses": (b"event: response.in_progress", b'"delta":"",'),
        "/v1/messages": (b"event: ping",),
    }
    extra = {"/v1/responses": 1, "/v1/messages": 1}.get(dialect.path, 0)
    return sum(received.count(mark) for mark in marks[dialect.path]) - extra
