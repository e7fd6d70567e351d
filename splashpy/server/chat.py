# SPDX-License-Identifier: Apache-2.0
"""OpenAI Chat Completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from splashpy import wire
from splashpy.protocol import Cycle, Generate, Prefill, RankedToken, ToolDelta
from splashpy.server.constraints import read_constraint
from splashpy.server.endpoint import Endpoint, with_defaults
from splashpy.server.engine import new_id
from splashpy.server.errors import ApiError
from splashpy.server.exchange import Ask
from splashpy.server.fields import Fields
from splashpy.server.logprobs import chat_logprobs, read_chat
from splashpy.server.openai_stream import ended, failed
from splashpy.server.outcome import (
    Outcome,
    extension,
    openai_usage,
    prompt_progress,
    timings,
    timings_so_far,
)
from splashpy.server.reading import (
    read_budget,
    read_effort,
    read_progress,
    read_reasoning_budget,
    read_sampling,
    refuse_media,
    unsupported,
)
from splashpy.server.responses import input_messages
from splashpy.server.streaming import data
from splashpy.server.tools import read_offer

_MOST_CHOICES = 8
_LONGEST_PIECE = 16 * 1024  # of arguments in one chunk
BUDGETS = ("max_completion_tokens", "max_tokens", "n_predict")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """What changes how the answer is written.

    Attributes:
        model: name the answer carries.
        usage_chunk: end a stream with a chunk of counts.
        token_ids: show the ids of tokens.
        logprobs: and how likely they were.
        timings: in every chunk of a stream.
        events: carry the engine's own events in ``splashpy.event``.
        reasoning: in a field of its own, nowhere, or with its tags in the content.
    """

    model: str
    usage_chunk: bool = False
    token_ids: bool = False
    logprobs: bool = False
    timings: bool = False
    events: bool = False
    reasoning: str = "split"


def read(body: Fields, endpoint: Endpoint) -> Ask:
    """A body as the engine is asked.

    Raises:
        ApiError: it cannot be answered as asked.
    """
    command = read_command(body, endpoint)
    stream = body.flag("stream")
    count = body.integer("n", 1, _MOST_CHOICES) or 1
    if stream and count > 1:
        raise ApiError("invalid_value", "n above 1 cannot be streamed", param="n")
    options = ChatOptions(
        model=endpoint.served_model(body.text("model")),
        usage_chunk=body.object("stream_options").flag("include_usage"),
        token_ids=command.return_token_ids,
        logprobs=command.logprobs is not None,
        timings=body.flag("timings_per_token"),
        events=stream and body.object("splashpy").flag("events"),
        reasoning=_reasoning_form(body),
    )
    return Ask(
        commands=repeated(command, count),
        shape=ChatShape(endpoint, options),
        stream=stream,
        progress=read_progress(body),
        seconds=body.number("timeout", 0.001),
    )


def read_command(body: Fields, endpoint: Endpoint) -> Generate:
    """The command of a chat body.

    Raises:
        ApiError: it cannot be answered as asked.
    """
    messages = body.items("messages")
    if not messages and body.has("input"):
        messages = input_messages(body)  # some editors mix the two shapes
    if not messages:
        raise ApiError("invalid_value", "messages is empty", param="messages")
    refuse_media(messages, "messages")
    if "audio" in body.items("modalities"):
        raise unsupported("modalities", "audio")
    offer = read_offer(body)
    effort, options = read_effort(body)
    command = Generate(
        id=new_id("", 32),
        messages=tuple(_message(item, number) for number, item in enumerate(messages)),
        tools=offer.tools,
        tool_choice=offer.choice,
        tool_name=offer.name,
        allowed_tools=offer.allowed,
        parallel_tool_calls=offer.parallel,
        options=options,
        continue_final=body.flag("continue_final_message"),
        constraint=read_constraint(body),
        reasoning_budget=read_reasoning_budget(body),
        logprobs=read_chat(body),
        sampling=read_sampling(body),
        effort=effort,
        max_tokens=read_budget(body, *BUDGETS),
        draft=body.flag("speculative", default=True),
        foreground=body.raw("priority") == "foreground",
        return_token_ids=body.flag("return_token_ids") or body.flag("return_tokens"),
    )
    return with_defaults(endpoint, command)


def repeated(command: Generate, count: int) -> tuple[Generate, ...]:
    """The command ``count`` times, each with an id and a seed of its own."""
    found = [command]
    for number in range(1, count):
        seed = command.sampling.seed
        sampling = command.sampling
        if seed is not None:
            sampling = replace(sampling, seed=(seed + number) % 2**64)
        found.append(replace(command, id=new_id("", 32), sampling=sampling))
    return tuple(found)


def _message(item: Any, number: int) -> dict[str, Any]:
    place = f"messages[{number}]"
    if not isinstance(item, dict):
        raise ApiError("invalid_value", f"{place} must be an object", param=place)
    if "cot_summary" in item and not item.get("reasoning_content"):
        return {**item, "reasoning_content": item["cot_summary"]}
    return item


def _reasoning_form(body: Fields) -> str:
    if not body.flag("include_reasoning", default=True):
        return "hidden"
    form = body.text("reasoning_format", "auto")
    return form if form in ("hidden", "none") else "split"


class ChatShape:
    """Writes ``chat.completion`` and its chunks."""

    def __init__(self, endpoint: Endpoint, options: ChatOptions):
        self._options = options
        self._facts = endpoint.engine.facts
        self._head = {
            "id": new_id("chatcmpl-", 32),
            "created": endpoint.created,
            "model": options.model,
            "system_fingerprint": endpoint.fingerprint,
        }
        self._inside = False  # reasoning that is written into the content
        self._now: dict[str, Any] = {}  # timings so far, where they are wanted

    def start(self, outcome: Outcome) -> Iterator[bytes]:
        """The chunk that names the role."""
        yield self._chunk({"role": "assistant", "content": ""})

    def take(self, outcome: Outcome, event: Cycle | ToolDelta) -> Iterator[bytes]:
        """Chunks of one kind each, and one with the event where that is wanted."""
        self._now = timings_so_far(outcome) if self._options.timings else {}
        yield from self._parts(outcome, event)
        if self._options.events:
            yield self._chunk({}, top={"splashpy": {"event": wire.to_json(event)}})

    def _parts(self, outcome: Outcome, event: Cycle | ToolDelta) -> Iterator[bytes]:
        if isinstance(event, ToolDelta):
            yield from self._call(outcome, event)
            return
        told = event.token_ids or event.logprobs
        about = self._about_tokens(event.token_ids, event.logprobs) if told else {}
        for channel, text in _runs(event):
            delta = self._delta(channel, text)
            if delta:
                yield self._chunk(delta, about=about)
                about = {}
        if about:
            yield self._chunk({}, about=about)

    def quiet(self, progress: Prefill | None) -> bytes:
        """An empty chunk: idle timers of clients see it, comments they do not."""
        return self._chunk({}, top=_progress(progress))

    def end(self, outcome: Outcome) -> Iterator[bytes]:
        """The chunk that says why it ended."""
        closing = self._close_inside()
        if closing:
            yield self._chunk({"content": closing})
        done = outcome.done
        tail = {"timings": timings(done), "splashpy": extension(done)} if done else {}
        if done and self._options.events:
            tail["splashpy"]["event"] = wire.to_json(done)
        yield self._chunk({}, outcome.finish, top=tail)

    def close(self, outcomes: list[Outcome]) -> Iterator[bytes]:
        """The counts, where they were asked for, and the end."""
        yield from ended(
            self._object("chat.completion.chunk"),
            outcomes,
            counted=self._options.usage_chunk,
        )

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """The error as an event, and the end."""
        yield from failed(error)

    def body(self, outcomes: list[Outcome]) -> Any:
        """The whole answer."""
        done = outcomes[0].done
        assert done is not None
        return {
            **self._object("chat.completion"),
            "choices": [self._choice(n, item) for n, item in enumerate(outcomes)],
            "usage": openai_usage(outcomes),
            "timings": timings(done),
            "splashpy": extension(done),
        }

    def _choice(self, number: int, outcome: Outcome) -> dict[str, Any]:
        calls = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.text},
            }
            for call in outcome.calls
        ]
        reasoning, content = outcome.reasoning, outcome.content
        if self._options.reasoning == "none" and reasoning:
            content = self._tagged(reasoning) + content
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if calls and not content else content,
        }
        if reasoning and self._options.reasoning == "split":
            message["reasoning_content"] = reasoning
        if calls:
            message["tool_calls"] = calls
        choice = {
            "index": number,
            "message": message,
            "logprobs": None,
            "finish_reason": outcome.finish,
        }
        return choice | self._about_tokens(outcome.token_ids, outcome.ranked)

    def _about_tokens(
        self, token_ids: Sequence[int], ranked: Sequence[RankedToken]
    ) -> dict[str, Any]:
        """The fields of a choice that tell of single tokens, where they are wanted."""
        found: dict[str, Any] = {}
        if self._options.token_ids:
            found["token_ids"] = list(token_ids)
        hidden = "r" if self._options.reasoning == "hidden" else ""
        shown = [token for token in ranked if token.channel != hidden]
        if self._options.logprobs:
            found["logprobs"] = chat_logprobs(shown)
        return found

    def _call(self, outcome: Outcome, event: ToolDelta) -> Iterator[bytes]:
        if event.name:
            call_id = outcome.call(event.index).call_id
            function = {"name": event.name, "arguments": ""}
            yield self._chunk_of_call(
                {"index": event.index, "id": call_id, "type": "function"}, function
            )
        text = event.args_delta
        for start in range(0, len(text), _LONGEST_PIECE):
            piece = text[start : start + _LONGEST_PIECE]
            yield self._chunk_of_call({"index": event.index}, {"arguments": piece})

    def _chunk_of_call(self, head: dict[str, Any], function: dict[str, Any]) -> bytes:
        # One element in each chunk: some clients look at the first one only.
        return self._chunk({"tool_calls": [{**head, "function": function}]})

    def _delta(self, channel: str, text: str) -> dict[str, Any]:
        form = self._options.reasoning
        if channel == "r" and form == "split":
            return {"reasoning_content": text}
        if channel == "r" and form == "hidden":
            return {}
        if channel == "r":
            opening = "" if self._inside else self._tags()[0]
            self._inside = True
            return {"content": opening + text}
        return {"content": self._close_inside() + text}

    def _close_inside(self) -> str:
        inside, self._inside = self._inside, False
        return self._tags()[1] if inside else ""

    def _tagged(self, reasoning: str) -> str:
        opening, closing = self._tags()
        return opening + reasoning + closing

    def _tags(self) -> tuple[str, str]:
        """The model's tags with their line breaks."""
        tags = self._facts.reasoning if self._facts else ()
        if len(tags) != 2:
            return "", ""
        return f"{tags[0]}\n", f"{tags[1]}\n\n"

    def _chunk(
        self,
        delta: dict[str, Any],
        finish: str | None = None,
        *,
        top: dict[str, Any] | None = None,
        about: dict[str, Any] | None = None,
    ) -> bytes:
        choice: dict[str, Any] = {
            "index": 0,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish,
            **(about or {}),
        }
        head = self._object("chat.completion.chunk")
        return data({**head, "choices": [choice], **self._now, **(top or {})})

    def _object(self, kind: str) -> dict[str, Any]:
        return {"id": self._head["id"], "object": kind, **self._head}


def _runs(event: Cycle) -> Iterator[tuple[str, str]]:
    """Texts of one channel each, without the markup of calls."""
    channel, text = "", ""
    for piece in event.pieces:
        if piece.channel == "x":
            continue
        if piece.channel != channel and text:
            yield channel, text
            text = ""
        channel, text = piece.channel, text + piece.text
    if text:
        yield channel, text


def _progress(prefill: Prefill | None) -> dict[str, Any]:
    return {} if prefill is None else {"prompt_progress": prompt_progress(prefill)}
