# SPDX-License-Identifier: Apache-2.0
"""Errors as clients understand them: a status, a code, and the shape of a dialect.

The two sentences about a prompt that is too long are read by programs: coding agents
look for them to decide whether to shorten the conversation and go on. They are part of
the protocol and must not be reworded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from splashpy.errors import SplashError


class Dialect(Enum):
    """Whose error shapes an endpoint uses."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    NATIVE = "native"
    OLLAMA = "ollama"


_RETRY_SOON = {"retry-after": "1"}
_RETRY_LATER = {"retry-after": "2"}
_NO_RETRY = {"x-should-retry": "false"}


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of error.

    Attributes:
        status: of the answer; Anthropic's differs where ``overloaded``.
        kind: OpenAI's ``error.type``.
        anthropic: Anthropic's ``error.type``.
        native: llama.cpp's ``error.type``.
        headers: further headers of the answer.
        overloaded: Anthropic says 529 for it.
    """

    status: int
    kind: str = "invalid_request_error"
    anthropic: str = "invalid_request_error"
    native: str = "invalid_request_error"
    headers: Mapping[str, str] = field(default_factory=dict)
    overloaded: bool = False


_BUSY = "overloaded_error"
_AWAY = Fault(
    503,
    "server_error",
    _BUSY,
    "unavailable_error",
    headers=_RETRY_LATER,
    overloaded=True,
)
FAULTS: dict[str, Fault] = {
    "invalid_value": Fault(400),
    "ambiguous_length": Fault(400),
    "context_length_exceeded": Fault(400, native="exceed_context_size_error"),
    "template_error": Fault(400),
    "unsupported_schema": Fault(400),
    "unsupported_modality": Fault(400),
    "unsupported_parameter": Fault(400),
    "previous_response_not_found": Fault(400),
    "invalid_api_key": Fault(
        401, anthropic="authentication_error", headers={"www-authenticate": "Bearer"}
    ),
    "host_not_allowed": Fault(403, anthropic="permission_error"),
    "origin_not_allowed": Fault(403, anthropic="permission_error"),
    "not_found": Fault(404, anthropic="not_found_error"),
    "model_not_found": Fault(404, anthropic="not_found_error"),
    "method_not_allowed": Fault(405),
    "upload_timeout": Fault(408, anthropic="timeout_error"),
    "length_required": Fault(411),
    "request_too_large": Fault(413, anthropic="request_too_large"),
    "unsupported_media_type": Fault(415),
    "queue_full": Fault(
        429,
        "rate_limit_error",
        _BUSY,
        "unavailable_error",
        headers=_RETRY_SOON,
        overloaded=True,
    ),
    "model_loading": _AWAY,
    "engine_recovering": _AWAY,
    "shutting_down": _AWAY,
    "insufficient_memory": _AWAY,
    "engine_failed": Fault(503, "server_error", "api_error", "server_error", _NO_RETRY),
    "not_supported": Fault(501),
    "request_timeout": Fault(
        504, "server_error", "timeout_error", "server_error", _NO_RETRY
    ),
    "context_exceeds_memory": Fault(
        507, "server_error", "api_error", "server_error", _NO_RETRY
    ),
    "internal_error": Fault(500, "server_error", "api_error", "server_error"),
}

_CODES = {
    "E-USAGE": "invalid_value",
    "E-CONSTRAINT": "unsupported_schema",
    "E-TEMPLATE": "template_error",
    "E-FIT": "context_exceeds_memory",
    "E-MEMORY": "insufficient_memory",
    "E-ENGINE-DIED": "engine_recovering",
    "E-ENGINE-STUCK": "engine_recovering",
}


class ApiError(Exception):
    """A request that cannot be answered as asked.

    Args:
        code: a key of :data:`FAULTS`.
        message: for whoever wrote the request.
        param: where in the body the problem is, such as ``messages[2].content``.
        numbers: further fields of llama.cpp's shape.
        status: another status than the code's own.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        numbers: Mapping[str, Any] | None = None,
        status: int = 0,
    ):
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.numbers = dict(numbers or {})
        self.fault = FAULTS[code]
        self.own_status = status
        self.request_id = ""  # of the request a stream fails for

    def status(self, dialect: Dialect) -> int:
        """The status of the answer."""
        if dialect is Dialect.ANTHROPIC and self.fault.overloaded:
            return 529
        return self.own_status or self.fault.status

    def fields(self, dialect: Dialect, request_id: str = "") -> dict[str, Any]:
        """The answer's body."""
        if dialect is Dialect.ANTHROPIC:
            error = {"type": self.fault.anthropic, "message": self.message}
            named = request_id or self.request_id
            return {"type": "error", "error": error, "request_id": named}
        if dialect is Dialect.NATIVE:
            error = {
                "code": self.status(dialect),
                "message": self.message,
                "type": self.fault.native,
                **self.numbers,
            }
            return {"error": error}
        if dialect is Dialect.OLLAMA:
            return {"error": self.message}
        error = {
            "message": self.message,
            "type": self.fault.kind,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}


class TooLongError(ApiError):
    """The prompt leaves no room for an answer.

    Args:
        tokens: of the prompt.
        context: tokens of prompt plus answer.
        param: the field that holds the prompt.
    """

    def __init__(self, tokens: int, context: int, param: str):
        super().__init__(
            "context_length_exceeded",
            f"This model's maximum context length is {context} tokens. However, your "
            f"request has {tokens} input tokens. Please reduce the length of the "
            "messages.",
            param=param,
            numbers={"n_prompt_tokens": tokens, "n_ctx": context},
        )
        self.tokens, self.context = tokens, context

    def fields(self, dialect: Dialect, request_id: str = "") -> dict[str, Any]:
        """The answer's body, with Anthropic's own sentence where that is read."""
        fields = super().fields(dialect, request_id)
        if dialect is Dialect.ANTHROPIC:
            most = self.context - 1  # one token of an answer must fit
            fields["error"]["message"] = (
                f"prompt is too long: {self.tokens} tokens > {most} maximum"
            )
        return fields


def from_failure(failure: Any, context: int, param: str = "messages") -> ApiError:
    """The error a ``Failure`` event or a ``SplashError`` means to a client.

    Args:
        failure: has ``code``, ``message``, ``why`` and, of a prompt that is too long,
            ``prompt``.
        context: tokens of prompt plus answer.
        param: the field that holds the prompt.
    """
    tokens = getattr(failure, "prompt", 0)
    if failure.code == "E-CONTEXT" and tokens:
        return TooLongError(tokens, context, param)
    code = _CODES.get(failure.code, "internal_error")
    if code == "internal_error":
        return ApiError(code, "the engine failed on this request; its log says more")
    message = f"{failure.message}: {failure.why}" if failure.why else failure.message
    return ApiError(code, message)


def bug() -> ApiError:
    """The error of a request that met a bug; it tells nothing of its inside."""
    return ApiError("internal_error", "a bug in splashpy; the server's log says more")


def engine_away(error: SplashError) -> ApiError:
    """The error of a request whose engine died under it."""
    return ApiError("engine_recovering", f"the engine is restarted: {error.message}")


def to_json(value: Any) -> bytes:
    """Compact UTF-8 JSON; a lone surrogate becomes a question mark."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", errors="replace")
