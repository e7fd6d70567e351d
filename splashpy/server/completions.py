# SPDX-License-Identifier: Apache-2.0
"""OpenAI Completions: raw prompts, and gaps between a prompt and a suffix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from splashpy.protocol import Cycle, Generate, Infill, Prefill, ToolDelta
from splashpy.server.chat import repeated
from splashpy.server.constraints import read_constraint
from splashpy.server.endpoint import Endpoint, with_defaults
from splashpy.server.engine import new_id
from splashpy.server.errors import ApiError, Dialect
from splashpy.server.exchange import Ask
from splashpy.server.fields import Fields
from splashpy.server.native import prompt_of
from splashpy.server.outcome import (
    Outcome,
    extension,
    openai_usage,
    prompt_progress,
    timings,
    timings_so_far,
)
from splashpy.server.reading import (
    read_progress,
    read_sampling,
    refuse_logprobs,
    unsupported,
)
from splashpy.server.streaming import DONE, data

_DEFAULT_TOKENS = 4096
_MOST_CHOICES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOptions:
    """What changes how the answer is written.

    Attributes:
        model: name the answer carries.
        usage_chunk: end a stream with a chunk of counts.
        timings: in every chunk of a stream.
        echoes: for each answer, what is put before it.
    """

    model: str
    usage_chunk: bool
    timings: bool
    echoes: tuple[str, ...]


def read(body: Fields, endpoint: Endpoint) -> Ask:
    """A body as the engine is asked.

    Raises:
        ApiError: it cannot be answered as asked.
    """
    refuse_logprobs(body, "logprobs")
    count = body.integer("n", 1, _MOST_CHOICES) or 1
    best = body.integer("best_of", 1, _MOST_CHOICES)
    if best is not None and best < count:
        raise body.wrong("best_of", f"n or more, which is {count}", best)
    if best is not None and best > count:
        raise unsupported("best_of", "ranking answers")
    stream = body.flag("stream")
    if stream and count > 1:
        raise ApiError("invalid_value", "n above 1 cannot be streamed", param="n")
    raw = body.raw("prompt")
    prompts = prompt_of("" if raw is None else raw, "prompt")
    commands, echoes = [], []
    for prompt in prompts:
        command = _command(body, endpoint, prompt)
        commands += repeated(command, count)
        echoes += [_echo(body, prompt)] * count
    options = CompletionOptions(
        model=endpoint.served_model(body.text("model")),
        usage_chunk=body.object("stream_options").flag("include_usage"),
        timings=body.flag("timings_per_token"),
        echoes=tuple(echoes),
    )
    return Ask(
        commands=tuple(commands),
        shape=CompletionShape(endpoint, options),
        stream=stream,
        param="prompt",
        progress=read_progress(body),
        seconds=body.number("timeout", 0.001),
    )


def _command(
    body: Fields, endpoint: Endpoint, prompt: str | tuple[int, ...]
) -> Generate:
    suffix = body.text("suffix")
    gap = None
    if suffix:
        facts = endpoint.engine.facts
        if facts is None or not facts.infill:
            raise unsupported("suffix", "filling gaps with this model")
        if not isinstance(prompt, str):
            raise body.wrong("prompt", "a text where there is a suffix", prompt)
        gap = Infill(prefix=prompt, suffix=suffix)
    tokens = body.integer("max_tokens", 0)
    if tokens is None:
        tokens = _DEFAULT_TOKENS
    command = Generate(
        id=new_id("", 32),
        prompt=prompt if isinstance(prompt, str) and gap is None else None,
        prompt_ids=prompt if isinstance(prompt, tuple) else (),
        infill=gap,
        constraint=read_constraint(body),
        sampling=read_sampling(body),
        max_tokens=tokens or None,
        prefill_only=tokens == 0,
        draft=body.flag("speculative", default=True),
        foreground=gap is not None or body.raw("priority") == "foreground",
    )
    return with_defaults(endpoint, command)


def _echo(body: Fields, prompt: str | tuple[int, ...]) -> str:
    if not body.flag("echo"):
        if body.integer("max_tokens") == 0:
            raise body.wrong("max_tokens", "1 or more without echo", 0)
        return ""
    if not isinstance(prompt, str):
        raise unsupported("echo", "repeating a prompt of token ids")
    return prompt


class CompletionShape:
    """Writes ``text_completion`` objects."""

    def __init__(self, endpoint: Endpoint, options: CompletionOptions):
        self._options = options
        self._number = -1
        self._head = {
            "id": new_id("cmpl-", 32),
            "object": "text_completion",
            "created": endpoint.created,
            "model": options.model,
            "system_fingerprint": endpoint.fingerprint,
        }

    def start(self, outcome: Outcome) -> Iterator[bytes]:
        """Nothing announces an answer here."""
        yield from ()

    def take(self, outcome: Outcome, event: Cycle | ToolDelta) -> Iterator[bytes]:
        """More text; the first of each answer after what is repeated of its prompt."""
        yield from self._begin(outcome)
        if isinstance(event, Cycle):
            text = "".join(piece.text for piece in event.pieces)
            if text:
                now = timings_so_far(outcome) if self._options.timings else {}
                yield self._chunk(text, top=now)

    def quiet(self, progress: Prefill | None) -> bytes:
        """A chunk without text."""
        told = (
            {} if progress is None else {"prompt_progress": prompt_progress(progress)}
        )
        return self._chunk("", top=told)

    def end(self, outcome: Outcome) -> Iterator[bytes]:
        """The chunk that says why it ended."""
        yield from self._begin(outcome)
        done = outcome.done
        tail = {"timings": timings(done), "splashpy": extension(done)} if done else {}
        yield self._chunk("", outcome.finish, top=tail)

    def close(self, outcomes: list[Outcome]) -> Iterator[bytes]:
        """The counts, where they were asked for, and the end."""
        if self._options.usage_chunk:
            yield data({**self._head, "choices": [], "usage": openai_usage(outcomes)})
        yield DONE

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """The error as an event, and the end."""
        yield data(error.fields(Dialect.OPENAI))
        yield DONE

    def body(self, outcomes: list[Outcome]) -> Any:
        """The whole answer."""
        done = outcomes[0].done
        assert done is not None
        choices = [
            _choice(number, echo + outcome.content, outcome.finish)
            for number, (outcome, echo) in enumerate(
                zip(outcomes, self._options.echoes, strict=True)
            )
        ]
        return {
            **self._head,
            "choices": choices,
            "usage": openai_usage(outcomes),
            "timings": timings(done),
            "splashpy": extension(done),
        }

    def _begin(self, outcome: Outcome) -> Iterator[bytes]:
        if outcome.begun:
            return
        outcome.begun = True
        self._number += 1
        echo = self._options.echoes[self._number]
        if echo:
            yield self._chunk(echo)

    def _chunk(
        self, text: str, finish: str | None = None, *, top: dict[str, Any] | None = None
    ) -> bytes:
        choice = _choice(max(self._number, 0), text, finish)
        return data({**self._head, "choices": [choice], **(top or {})})


def _choice(number: int, text: str, finish: str | None) -> dict[str, Any]:
    return {"index": number, "text": text, "logprobs": None, "finish_reason": finish}
