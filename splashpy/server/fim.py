# SPDX-License-Identifier: Apache-2.0
"""Mistral's ``/v1/fim/completions``: a gap to fill, answered in the shape of a chat."""

from __future__ import annotations

from dataclasses import replace

from splashpy.protocol import Generate, Infill
from splashpy.server.chat import BUDGETS, ChatOptions, ChatShape
from splashpy.server.constraints import read_constraint
from splashpy.server.endpoint import Endpoint, with_defaults
from splashpy.server.engine import new_id
from splashpy.server.exchange import Ask
from splashpy.server.fields import Fields
from splashpy.server.reading import (
    no_gaps,
    read_budget,
    read_progress,
    read_sampling,
)


def read(body: Fields, endpoint: Endpoint) -> Ask:
    """A body as the engine is asked.

    Raises:
        ApiError: it cannot be answered as asked, or the model fills no gaps.
    """
    facts = endpoint.engine.facts
    if facts is None or not facts.infill:
        raise no_gaps("suffix")
    sampling = read_sampling(body)
    seed = body.integer("random_seed", 0, 2**64 - 1)
    if sampling.seed is None and seed is not None:
        sampling = replace(sampling, seed=seed)
    command = Generate(
        id=new_id("", 32),
        infill=Infill(prefix=body.text("prompt"), suffix=body.text("suffix")),
        constraint=read_constraint(body),
        sampling=sampling,
        max_tokens=read_budget(body, *BUDGETS),
        draft=body.flag("speculative", default=True),
        foreground=True,
    )
    options = ChatOptions(
        model=endpoint.served_model(body.text("model")),
        usage_chunk=body.object("stream_options").flag("include_usage"),
        timings=body.flag("timings_per_token"),
    )
    return Ask(
        commands=(with_defaults(endpoint, command),),
        shape=ChatShape(endpoint, options),
        stream=body.flag("stream"),
        progress=read_progress(body),
        param="prompt",
        seconds=body.number("timeout", 0.001),
    )
