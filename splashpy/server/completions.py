# SPDX-License-Identifier: Apache-2.0
"""OpenAI Completions: raw prompts, and gaps between a prompt and a suffix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from splashpy.protocol import Cycle, Generate, Infill, Prefill, ToolDelta
from splashpy.server.chat import repeated
from splashpy.server.constraints import read_constraint
from splashpy.server.endpoint import Endpoint, with_defaults
from splashpy.server.engine import new_id
from splashpy.server.errors import ApiError
from splashpy.server.exchange import Ask
from splashpy.server.fields import Fields
from splashpy.server.logprobs import MOST, completion_logprobs, mean_logprob
from splashpy.server.native import prompt_of
from splashpy.server.openai_stream import ended, failed
from splashpy.server.outcome import (
    Outcome,
    extension,
    openai_usage,
    prompt_progress,
    timings,
    timings_so_far,
)
from splashpy.server.reading import no_gaps, read_progress, read_sampling
from splashpy.server.streaming import data
from splashpy.server.tokens import joined

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
        logprobs: tell how likely tokens were.
        tries: answers to each prompt.
        kept: those of them that are shown, the likeliest first where not all are.
    """

    model: str
    usage_chunk: bool
    timings: bool
    echoes: tuple[str, ...]
    logprobs: bool = False
    tries: int = 1
    kept: int = 1


async def read(body: Fields, endpoint: Endpoint) -> Ask:
    """A body as the engine is asked.

    Raises:
        ApiError: it cannot be answered as asked.
    """
    count = body.integer("n", 1, _MOST_CHOICES) or 1
    best = body.integer("best_of", 1, _MOST_CHOICES)
    if best is not None and best < count:
        raise body.wrong("best_of", f"n or more, which is {count}", best)
    tries = best or count
    stream = body.flag("stream")
    if stream and count > 1:
        raise ApiError("invalid_value", "n above 1 cannot be streamed", param="n")
    if stream and tries > 1:
        raise body.wrong("best_of", "1 in a stream", tries)
    raw = body.raw("prompt")
    prompts = prompt_of("" if raw is None else raw, "prompt")
    commands, echoes = [], []
    for prompt in prompts:
        command = _command(body, endpoint, prompt)
        if tries > count and command.logprobs is None:
            command = replace(command, logprobs=0)  # to rank them by
        commands += repeated(command, tries)
        echoes += [await _echo(body, endpoint, prompt)] * tries
    options = CompletionOptions(
        model=endpoint.served_model(body.text("model")),
        usage_chunk=body.object("stream_options").flag("include_usage"),
        timings=body.flag("timings_per_token"),
        echoes=tuple(echoes),
        logprobs=body.has("logprobs"),
        tries=tries,
        kept=count,
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
            raise no_gaps("suffix")
        if not isinstance(prompt, str):
            raise body.wrong("prompt", "a text where there is a suffix", prompt)
        gap = Infill(prefix=prompt, suffix=suffix)
    tokens = body.integer("max_tokens", 0)
    if tokens is None:
        tokens = _DEFAULT_TOKENS
    logprobs = body.integer("logprobs", 0, MOST)
    echoed = body.flag("echo") and gap is None
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
        logprobs=logprobs,
        prompt_logprobs=logprobs if echoed else None,
    )
    return with_defaults(endpoint, command)


async def _echo(body: Fields, endpoint: Endpoint, prompt: str | tuple[int, ...]) -> str:
    if not body.flag("echo"):
        if body.integer("max_tokens") == 0:
            raise body.wrong("max_tokens", "1 or more without echo", 0)
        return ""
    return prompt if isinstance(prompt, str) else await joined(endpoint, prompt)


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
            if text or event.logprobs:
                ranked = completion_logprobs(event.logprobs, len(self._echo))
                now = timings_so_far(outcome) if self._options.timings else {}
                yield self._chunk(text, logprobs=ranked, top=now)

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
        yield from ended(self._head, outcomes, counted=self._options.usage_chunk)

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """The error as an event, and the end."""
        yield from failed(error)

    def body(self, outcomes: list[Outcome]) -> Any:
        """The whole answer."""
        done = outcomes[0].done
        assert done is not None
        shown = self._shown(list(zip(outcomes, self._options.echoes, strict=True)))
        choices = [
            _choice(number, echo + outcome.content, outcome.finish)
            | self._ranked(outcome, echo)
            for number, (outcome, echo) in enumerate(shown)
        ]
        return {
            **self._head,
            "choices": choices,
            "usage": openai_usage(outcomes),
            "timings": timings(done),
            "splashpy": extension(done),
        }

    def _shown(self, answers: list[tuple[Outcome, str]]) -> list[tuple[Outcome, str]]:
        """The answers to be shown, for each prompt the likeliest of them."""
        tries, kept = self._options.tries, self._options.kept
        if kept == tries:
            return answers
        found: list[tuple[Outcome, str]] = []
        for first in range(0, len(answers), tries):
            group = answers[first : first + tries]
            group.sort(key=lambda answer: -mean_logprob(answer[0].ranked))
            found += group[:kept]
        return found

    def _ranked(self, outcome: Outcome, echo: str) -> dict[str, Any]:
        if not self._options.logprobs:
            return {}
        prompt = completion_logprobs(outcome.prompt_ranked if echo else ())
        answer = completion_logprobs(outcome.ranked, len(echo))
        return {"logprobs": {name: prompt[name] + answer[name] for name in prompt}}

    @property
    def _echo(self) -> str:
        """What is put before the answer that is being written."""
        return self._options.echoes[max(self._number, 0)]

    def _begin(self, outcome: Outcome) -> Iterator[bytes]:
        if outcome.begun:
            return
        outcome.begun = True
        self._number += 1
        if self._echo:
            ranked = completion_logprobs(outcome.prompt_ranked)
            yield self._chunk(self._echo, logprobs=ranked)

    def _chunk(
        self,
        text: str,
        finish: str | None = None,
        *,
        logprobs: dict[str, Any] | None = None,
        top: dict[str, Any] | None = None,
    ) -> bytes:
        choice = _choice(max(self._number, 0), text, finish)
        if self._options.logprobs:
            choice["logprobs"] = logprobs
        return data({**self._head, "choices": [choice], **(top or {})})


def _choice(number: int, text: str, finish: str | None) -> dict[str, Any]:
    return {"index": number, "text": text, "logprobs": None, "finish_reason": finish}
