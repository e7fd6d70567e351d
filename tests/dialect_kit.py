# SPDX-License-Identifier: Apache-2.0
"""Answers in every dialect, read the way its clients read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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
ENDINGS["stop_sequence"] = "stop"


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
    stop: str = "stop"

    def ask(
        self, limit: int | None, *, stream: bool, stop: list[str] | None = None
    ) -> dict[str, Any]:
        options: dict[str, Any] = {} if limit is None else {self.budget: limit}
        options |= {} if stop is None else {self.stop: stop}
        if self.budget == "num_predict":
            options = {"options": options}
        return {**self.body, **options, "stream": stream}


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
        "stop_sequences",
    ),
    "ollama": Dialect(
        "/api/chat",
        hear_ollama,
        hear_whole_ollama,
        {"messages": HI, "tools": TOOLS},
        "num_predict",
    ),
}
