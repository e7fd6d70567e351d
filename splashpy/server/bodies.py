# SPDX-License-Identifier: Apache-2.0
"""The body of a request: bytes within limits of size and time, then a JSON object."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from starlette.types import Receive

from splashpy.server.errors import ApiError

_IDLE_SECONDS = 30.0
_BYTES_PER_SECOND = 512 * 1024
_DEPTH = 256
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")


class DisconnectedError(Exception):
    """Nobody is there any more."""


async def read_bytes(receive: Receive, limit: int) -> bytes:
    """All bytes of a body.

    Args:
        receive: of the request.
        limit: most bytes.

    Raises:
        ApiError: too many, or too slowly.
        DisconnectedError: the client went away.
    """
    body = bytearray()
    loop = asyncio.get_running_loop()
    start = loop.time()
    while True:
        allowed = start + _IDLE_SECONDS + len(body) / _BYTES_PER_SECOND
        wait = min(_IDLE_SECONDS, allowed - loop.time())
        try:
            async with asyncio.timeout(max(wait, 0.001)):
                message = await receive()
        except TimeoutError:
            raise ApiError("upload_timeout", "the body came too slowly") from None
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        body += message.get("body", b"")
        if len(body) > limit:
            raise too_large(limit)
        if not message.get("more_body", False):
            return bytes(body)


def too_large(limit: int) -> ApiError:
    """The error of a body beyond the limit."""
    return ApiError(
        "request_too_large",
        f"the body is larger than {limit} bytes; --max-request-size raises the limit",
    )


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body.

    Lone surrogates become U+FFFD; of equal keys the last one counts.

    Raises:
        ApiError: it is no JSON object, holds NaN or infinity, or is nested too deeply.
    """
    if not body.strip():
        raise ApiError("invalid_value", "the body is empty; a JSON object is expected")
    try:
        data = json.loads(
            body.decode("utf-8"), parse_constant=_refuse, parse_float=_float
        )
    except UnicodeDecodeError:
        raise ApiError("invalid_value", "the body is not UTF-8") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise ApiError("invalid_value", f"the body is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ApiError("invalid_value", "the body must be a JSON object")
    _check_depth(data)
    return _repaired(data) if _SURROGATE_ESCAPE.search(body) else data


def _check_depth(data: Any) -> None:
    level, depth = [data], 0
    while level:
        depth += 1
        if depth > _DEPTH:
            raise _too_deep()
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]


def _too_deep() -> ApiError:
    return ApiError("invalid_value", f"the body is nested deeper than {_DEPTH} levels")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is larger than a number can be")
    return value


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _repaired(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_repaired(key): _repaired(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_repaired(item) for item in value]
    return value
