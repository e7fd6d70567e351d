# SPDX-License-Identifier: Apache-2.0
"""The native endpoints of llama.cpp: ``/completion`` and ``/infill``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from splashpy.protocol import (
    Cycle,
    Generate,
    Infill,
    Prefill,
    RankedToken,
    Sampling,
    ToolDelta,
)
from splashpy.server.chat import repeated
from splashpy.server.constraints import read_constraint
from splashpy.server.endpoint import Endpoint, with_defaults
from splashpy.server.engine import new_id
from splashpy.server.errors import ApiError, Dialect
from splashpy.server.exchange import Ask
from splashpy.server.fields import Fields
from splashpy.server.logprobs import native_logprobs, native_probs, read_native
from splashpy.server.outcome import Outcome, prompt_progress, timings, timings_so_far
from splashpy.server.reading import read_progress, read_sampling
from splashpy.server.streaming import data
from splashpy.server.tokens import token_ids

_INFILL_TOKENS = 128
_MOST_CHOICES = 8
_INTERACTIVE_TOKENS = 256  # a shorter completion with a time limit is somebody typing


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeOptions:
    """What changes how the answer is written.

    Attributes:
        model: name the answer carries.
        prompt: text of the prompt, as it was sent.
        settings: ``generation_settings``.
        fields: the only fields wanted; None wants all.
        tokens: show the ids of tokens.
        logprobs: and how likely they were.
        drawn: in what they were drawn from, as probabilities.
        timings: in every event of a stream.
        indent: a line with less indentation is no part of the answer; 0: any is.
    """

    model: str
    prompt: str
    settings: dict[str, Any]
    fields: tuple[str, ...] | None
    tokens: bool
    timings: bool
    logprobs: bool = False
    drawn: bool = False
    indent: int = 0


async def read_completion(body: Fields, endpoint: Endpoint) -> Ask:
    """A body of ``/completion`` as the engine is asked.

    Raises:
        ApiError: it cannot be answered as asked.
    """
    prompt = body.raw("prompt")
    if _is_mixed(prompt):
        return _read(body, endpoint, await _mixed(endpoint, prompt))
    texts = prompt_of(prompt if prompt is not None else "", "prompt")
    if len(texts) != 1:
        raise ApiError("invalid_value", "give one prompt", param="prompt")
    return _read(body, endpoint, texts[0])


def read_infill(body: Fields, endpoint: Endpoint) -> Ask:
    """A body of ``/infill`` as the engine is asked.

    Raises:
        ApiError: it cannot be answered as asked, or the model fills no gaps.
    """
    if endpoint.engine.facts is None or not endpoint.engine.facts.infill:
        raise ApiError("not_supported", "Infill is not supported by this model")
    count = body.integer("n_predict", -1)
    extra = [
        (item.text("filename"), item.text("text"))
        for item in body.objects("input_extra")
    ]
    gap = Infill(
        prefix=body.text("input_prefix"),
        suffix=body.text("input_suffix"),
        line=body.text("prompt"),
        extra=tuple(extra),
        room=_INFILL_TOKENS if count is None or count < 0 else count,
    )
    return _read(body, endpoint, gap)


def prompt_of(value: Any, place: str) -> list[str | tuple[int, ...]]:
    """Prompts as texts or token ids: one, or a list of them.

    Raises:
        ApiError: anything else.
    """
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value and all(map(_is_id, value)):
        return [tuple(value)]
    if isinstance(value, list) and value:
        found = []
        for number, item in enumerate(value):
            if not isinstance(item, str) and not (
                isinstance(item, list) and item and all(map(_is_id, item))
            ):
                raise _no_prompt(f"{place}[{number}]")
            found.append(item if isinstance(item, str) else tuple(item))
        return found
    raise _no_prompt(place)


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_mixed(value: Any) -> bool:
    """Whether a prompt is texts and token ids in turn."""
    if not isinstance(value, list):
        return False
    ids = [_is_id(item) for item in value]
    return any(ids) and not all(ids) and all(map(_is_part, value))


def _is_part(value: Any) -> bool:
    return isinstance(value, str) or _is_id(value)


async def _mixed(endpoint: Endpoint, parts: list[str | int]) -> tuple[int, ...]:
    """Token ids of such a prompt; a text it begins with begins like any other."""
    found: list[int] = []
    for number, part in enumerate(parts):
        if isinstance(part, str):
            found += await token_ids(endpoint, part, begins=not number)
        else:
            found.append(part)
    return tuple(found)


def _no_prompt(place: str) -> ApiError:
    allowed = "a text, a list of token ids, or a list of these"
    return ApiError("invalid_value", f"{place} must be {allowed}", param=place)


def _read(
    body: Fields, endpoint: Endpoint, prompt: str | tuple[int, ...] | Infill
) -> Ask:
    count = body.integer("n_predict", -1)
    limit = body.number("t_max_predict_ms", 0)
    indent = body.integer("n_indent", 0)
    stream = body.flag("stream")
    choices = body.integer("n_cmpl", 1, _MOST_CHOICES) or 1
    if stream and choices > 1:
        raise ApiError("invalid_value", "n_cmpl above 1 cannot be streamed")
    typing = limit is not None and count is not None and count >= 0
    command = Generate(
        id=new_id("", 32),
        prompt=prompt if isinstance(prompt, str) else None,
        prompt_ids=prompt if isinstance(prompt, tuple) else (),
        infill=prompt if isinstance(prompt, Infill) else None,
        constraint=read_constraint(body),
        sampling=read_sampling(body),
        max_tokens=None if count is None or count <= 0 else count,
        prefill_only=count == 0,
        return_token_ids=body.flag("return_tokens"),
        logprobs=read_native(body),
        logprobs_drawn=body.flag("post_sampling_probs"),
        draft=body.flag("speculative", default=True),
        foreground=isinstance(prompt, Infill)
        or (typing and (count or 0) <= _INTERACTIVE_TOKENS),
    )
    command = with_defaults(endpoint, command)
    names = body.strings("response_fields", 64) if body.has("response_fields") else None
    options = NativeOptions(
        model=endpoint.served_model(body.text("model")),
        prompt=prompt if isinstance(prompt, str) else "",
        settings=_settings(endpoint, command),
        fields=names,
        tokens=command.return_token_ids,
        logprobs=command.logprobs is not None,
        drawn=command.logprobs_drawn,
        timings=body.flag("timings_per_token"),
        indent=indent or 0,
    )
    return Ask(
        commands=repeated(command, choices),
        shape=NativeShape(options),
        stream=stream,
        param="prompt",
        progress=read_progress(body),
        limit=_limit(limit, indent),
    )


def _settings(endpoint: Endpoint, command: Generate) -> dict[str, Any]:
    sampling: Sampling = command.sampling
    return {
        "n_ctx": endpoint.engine.context,
        "n_predict": -1 if command.max_tokens is None else command.max_tokens,
        "seed": sampling.seed,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "stop": list(sampling.stop),
    }


def _limit(
    milliseconds: float | None, indent: int | None
) -> Callable[[Outcome, float], bool] | None:
    """When to stop: after a time, once a line is whole; before a line less indented."""
    if milliseconds is None and not indent:
        return None

    def reached(outcome: Outcome, seconds: float) -> bool:
        text = outcome.content
        if "\n" not in text:
            return False
        late = milliseconds is not None and 1e3 * seconds > milliseconds
        return late or (bool(indent) and _outdented(text, indent or 0) is not None)

    return reached


def _outdented(text: str, indent: int) -> int | None:
    """Where the first later line with less indentation begins; None for none."""
    at = text.find("\n") + 1
    while at:
        end = text.find("\n", at)
        line = text[at:] if end < 0 else text[at:end]
        body = line.lstrip(" \t")
        if body and len(line) - len(body) < indent:
            return at
        at = end + 1
    return None


class NativeShape:
    """Writes llama.cpp's object and its events."""

    def __init__(self, options: NativeOptions):
        self._options = options
        self._sent = 0  # characters, where indentation decides

    def start(self, outcome: Outcome) -> Iterator[bytes]:
        """Nothing announces an answer here."""
        yield from ()

    def take(self, outcome: Outcome, event: Cycle | ToolDelta) -> Iterator[bytes]:
        """More text."""
        if isinstance(event, ToolDelta):
            return
        text = self._more(outcome, event)
        if not text and not event.token_ids and not event.logprobs:
            return
        tokens = list(event.token_ids) if self._options.tokens else []
        part = {"content": text, "tokens": tokens, "stop": False, "index": 0}
        now = timings_so_far(outcome) if self._options.timings else {}
        yield data(self._chosen(part | now | self._ranked(event.logprobs)))

    def quiet(self, progress: Prefill | None) -> bytes:
        """A comment, as llama.cpp sends; with the progress where it is wanted."""
        if progress is None:
            return b": \n\n"
        return data(
            {"content": "", "stop": False, "prompt_progress": prompt_progress(progress)}
        )

    def end(self, outcome: Outcome) -> Iterator[bytes]:
        """The whole object, without the text that was sent already."""
        rest = self._within(outcome, last=True)
        yield data(self._chosen({**self._object(outcome, 0), "content": rest}))

    def close(self, outcomes: list[Outcome]) -> Iterator[bytes]:
        """Nothing follows the object."""
        yield from ()

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """The error as an event."""
        yield data(error.fields(Dialect.NATIVE))

    def body(self, outcomes: list[Outcome]) -> Any:
        """The object, or a list of them where several were asked for."""
        found = [
            self._chosen(self._object(outcome, number))
            for number, outcome in enumerate(outcomes)
        ]
        return found[0] if len(found) == 1 else found

    def _more(self, outcome: Outcome, event: Cycle) -> str:
        if self._options.indent:
            return self._within(outcome)
        return "".join(piece.text for piece in event.pieces)

    def _within(self, outcome: Outcome, *, last: bool = False) -> str:
        """Text that was not sent yet, up to a line that is less indented.

        How far a line is indented is known only when more than white space came.
        """
        if not self._options.indent:
            return ""
        text = outcome.content
        end = _outdented(text, self._options.indent)
        if end is None:
            line = text.rfind("\n") + 1
            open_ = line and not last and not text[line:].strip(" \t")
            end = line if open_ else len(text)
        more, self._sent = text[self._sent : end], end
        return more

    def _object(self, outcome: Outcome, number: int) -> dict[str, Any]:
        done = outcome.done
        assert done is not None
        text = outcome.content
        if self._options.indent:
            text = text[: _outdented(text, self._options.indent)]
        return {
            "index": number,
            "content": text,
            "tokens": outcome.token_ids if self._options.tokens else [],
            "id_slot": 0,
            "stop": True,
            "model": self._options.model,
            "tokens_predicted": done.usage.completion,
            "tokens_evaluated": done.usage.prompt,
            "generation_settings": self._options.settings,
            "prompt": self._options.prompt,
            "has_new_line": "\n" in text,
            "truncated": False,
            "stop_type": _stop_type(outcome),
            "stopping_word": done.stop_text,
            "tokens_cached": done.usage.cached,
            "timings": timings(done),
            **self._ranked(outcome.ranked),
        }

    def _ranked(self, tokens: Sequence[RankedToken]) -> dict[str, Any]:
        if not self._options.logprobs:
            return {}
        write = native_probs if self._options.drawn else native_logprobs
        return {"completion_probabilities": write(tokens)}

    def _chosen(self, value: dict[str, Any]) -> dict[str, Any]:
        """The fields that were asked for, nested ones under their whole path."""
        if self._options.fields is None:
            return value
        found = {}
        for name in self._options.fields:
            node: Any = value
            for step in name.split("/"):
                node = node.get(step) if isinstance(node, dict) else None
            if node is not None:
                found[name] = node
        return found


def _stop_type(outcome: Outcome) -> str:
    done = outcome.done
    assert done is not None
    if done.stop_text:
        return "word"
    return "limit" if outcome.finish == "length" else "eos"
