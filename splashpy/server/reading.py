# SPDX-License-Identifier: Apache-2.0
"""Fields several dialects share, read into the engine's words."""

from __future__ import annotations

import re
from typing import Any

from splashpy.protocol import Sampling
from splashpy.server.errors import ApiError
from splashpy.server.fields import Fields

BAN = -1e9  # added to a logit, leaves no chance to a token
FORCE = 1e3  # leaves none to any other; two tokens with it keep their difference
_LITTLE = 1e-9
_TOKEN_ID = re.compile("[0-9]{1,18}")
_MOST_STOPS = 16
_REASONING_BUDGETS = (
    "reasoning_budget_tokens",
    "thinking_budget",
    "thinking_token_budget",
)
_PENALTY_WINDOW = 64  # as llama.cpp, where a request sets a repetition penalty only
_UNREADABLE = {
    "image_url": "images",
    "input_image": "images",
    "image": "images",
    "input_audio": "audio",
    "audio": "audio",
    "video": "video",
    "video_url": "video",
    "file": "files",
    "input_file": "files",
    "document": "documents",
}


def read_sampling(body: Fields, *, stops: str = "stop") -> Sampling:
    """How tokens are chosen.

    Args:
        body: the request.
        stops: the field that holds the stop strings.

    Raises:
        ApiError: a value is impossible.
    """
    top_k = body.integer("top_k", -1)
    seed = body.integer("seed", None, 2**64 - 1)
    repetition = body.number("repetition_penalty", 0, 10)
    if repetition is None:
        repetition = body.number("repeat_penalty", 0, 10)
    if repetition == 0:
        raise body.wrong("repetition_penalty", "above 0", repetition)
    top_p = body.number("top_p", 0, 1)
    if top_p == 0:
        top_p = _LITTLE  # clients mean: the most likely token only
    min_p = body.number("min_p", 0, 1)
    if min_p == 1:
        min_p -= _LITTLE  # the same
    window = body.integer("repeat_last_n", -1)
    if window is None and repetition not in (None, 1):
        window = _PENALTY_WINDOW
    return Sampling(
        temperature=body.number("temperature", 0, 2),
        top_p=top_p,
        top_k=max(top_k, 0) if top_k is not None else None,
        min_p=min_p,
        presence_penalty=body.number("presence_penalty", -2, 2),
        frequency_penalty=body.number("frequency_penalty", -2, 2),
        repetition_penalty=repetition,
        penalty_window=window if window and window > 0 else None,
        seed=seed if seed is not None and seed >= 0 else None,
        stop=body.strings(stops, _MOST_STOPS),
        logit_bias=read_bias(body),
        ignore_eos=body.flag("ignore_eos"),
    )


def read_bias(body: Fields) -> tuple[tuple[int, float], ...]:
    """``logit_bias``: an object by token id, or llama.cpp's list of pairs.

    Raises:
        ApiError: neither, or not by ids.
    """
    value = body.raw("logit_bias")
    if value is None:
        return ()
    pairs: list[Any] = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list):
        raise body.wrong("logit_bias", "an object or a list of pairs", value)
    found = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise body.wrong("logit_bias", "pairs of token id and number", pair)
        found.append((_token_id(body, pair[0]), _bias(body, pair[1])))
    return tuple(found)


def _token_id(body: Fields, value: Any) -> int:
    if isinstance(value, str) and _TOKEN_ID.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise body.wrong("logit_bias", "by token id", value)
    return value


def _bias(body: Fields, value: Any) -> float:
    if value is False:
        return BAN
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise body.wrong("logit_bias", "of numbers from -100 to 100", value)
    if abs(value) > 100:
        raise body.wrong("logit_bias", "of numbers from -100 to 100", value)
    if abs(value) == 100:
        return FORCE if value > 0 else BAN
    return float(value)


def read_budget(body: Fields, *names: str) -> int | None:
    """Tokens of the answer: the first field that is there; -1 is what fits.

    Raises:
        ApiError: 0, or below -1.
    """
    found = [body.integer(name, -1) for name in names]
    for name, value in zip(names, found, strict=True):
        if value == 0:
            raise body.wrong(name, "1 or more", value)
        if value is not None:
            return None if value == -1 else value
    return None


def read_progress(body: Fields) -> bool:
    """Whether to tell how far the prompt is read.

    Raises:
        ApiError: it is asked for where there is no stream to tell it in.
    """
    told = body.flag("return_progress")
    if told and not body.flag("stream"):
        raise body.wrong("return_progress", "false without stream", told)
    return told


def read_effort(body: Fields) -> tuple[str | None, dict[str, Any]]:
    """The reasoning effort asked for, and variables of the chat template.

    Raises:
        ApiError: a field of the wrong type.
    """
    options = body.mapping("chat_template_kwargs")
    effort = options.pop("reasoning_effort", None)
    if effort is not None and not isinstance(effort, str):
        raise body.wrong("chat_template_kwargs", "with text as its effort", effort)
    named = body.text("reasoning_effort")
    reasoning = body.object("reasoning") if not _is_flag(body, "reasoning") else None
    nested = reasoning.text("effort") if reasoning is not None else ""
    effort = effort or named or nested or None
    thinking = _thinking(body)
    if thinking is False and effort is None:
        effort = "none"
    if thinking is True and effort is None:
        options = {"enable_thinking": True, "thinking": True, **options}
    if body.has("preserve_thinking"):
        options.setdefault("preserve_thinking", body.flag("preserve_thinking"))
    return effort, options


def _is_flag(body: Fields, name: str) -> bool:
    return isinstance(body.raw(name), bool | str)


def _thinking(body: Fields) -> bool | None:
    if body.has("enable_thinking"):
        return body.flag("enable_thinking")
    value = body.raw("thinking")
    if isinstance(value, bool):
        return value
    if isinstance(value, dict):
        return value.get("type") != "disabled"
    return None


def read_reasoning_budget(body: Fields) -> int | None:
    """Tokens of reasoning at most: the first field that is there; -1 is no limit.

    Raises:
        ApiError: below -1, or no integer.
    """
    nested = [
        (body.object(holder), name)
        for holder, name in (("thinking", "budget_tokens"), ("reasoning", "max_tokens"))
        if isinstance(body.raw(holder), dict)
    ]
    for fields, name in (*nested, *((body, name) for name in _REASONING_BUDGETS)):
        value = fields.integer(name, -1)
        if value is not None:
            return None if value == -1 else value
    return None


def unsupported(param: str, what: str) -> ApiError:
    """The error for a field that asks for something this server cannot do."""
    return ApiError(
        "not_supported",
        f"{param}: {what} is not supported by this version of splashpy",
        param=param,
        status=400,
    )


def no_gaps(param: str) -> ApiError:
    """The error for a gap where the model has no tokens to tell it from a text."""
    return ApiError(
        "not_supported",
        f"{param}: this model does not fill gaps: its tokenizer has no tokens for them",
        param=param,
        status=400,
    )


def refuse_media(messages: list[Any], param: str) -> None:
    """Refuse images, audio and files: the model reads text only.

    Raises:
        ApiError: a message holds one.
    """
    for number, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind in _UNREADABLE:
                raise media(kind, f"{param}[{number}].content")


def media(kind: str, param: str) -> ApiError:
    """The error for a part of a message that is not text."""
    what = _UNREADABLE.get(kind, kind)
    return ApiError(
        "unsupported_modality",
        f"{param} has a part of type {kind}; this model reads text, no {what}",
        param=param,
    )
