# SPDX-License-Identifier: Apache-2.0
"""How streams of OpenAI's two older endpoints end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from splashpy.server.errors import ApiError, Dialect
from splashpy.server.outcome import Outcome, openai_usage, timings
from splashpy.server.streaming import DONE, data


def ended(
    head: Mapping[str, Any], outcomes: list[Outcome], *, counted: bool
) -> Iterator[bytes]:
    """The end of a stream, after a chunk of counts where they were asked for.

    Args:
        head: of every chunk.
        outcomes: the answers.
        counted: the counts were asked for.
    """
    if counted:
        done = outcomes[-1].done
        usage = {"choices": [], "usage": openai_usage(outcomes)}
        yield data({**head, **usage, "timings": timings(done) if done else {}})
    yield DONE


def failed(error: ApiError) -> Iterator[bytes]:
    """The error as an event, and the end."""
    yield data(error.fields(Dialect.OPENAI))
    yield DONE
