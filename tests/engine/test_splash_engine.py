# SPDX-License-Identifier: Apache-2.0
"""A Splash package decodes as the model it was made from, with drafts and without."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest
from splash_kit import NAMES, TinySplash, write_tiny_splash

from splashpy.drafting.plain import PlainDrafter
from splashpy.engine.generation import generate
from splashpy.engine.loading import Loaded, LoadRequest, load
from splashpy.engine.request import GenerationRequest, TokensCommitted
from splashpy.models.loading import to_float32
from splashpy.package.model_directory import ModelDirectory
from splashpy.package.splash.formats import FORMATS
from splashpy.protocol import LoadOptions
from splashpy.verification.sampling import SamplingParams

PROMPT = (5, 80, 17, 200, 33)
TOKENS = 24


@pytest.fixture(params=NAMES)
def splash(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> TinySplash:
    written = write_tiny_splash(tmp_path / "package", request.param)
    monkeypatch.setitem(FORMATS, written.row.name, written.row)
    return written


def decoded(loaded: Loaded, *, draft: bool) -> tuple[list[int], int]:
    """Tokens, and how many were proposed."""
    request = GenerationRequest(
        id="a",
        token_ids=PROMPT,
        sampling=SamplingParams(),
        seed=0,
        max_new_tokens=TOKENS,
    )
    drafter = loaded.drafter if draft else PlainDrafter()
    events = [
        event
        for event in generate(
            request, loaded.target, drafter, None, cancelled=lambda: False
        )
        if isinstance(event, TokensCommitted)
    ]
    tokens = [token for event in events for token in event.token_ids]
    return tokens, sum(event.drafted for event in events)


def test_drafts_of_the_package_do_not_change_the_text(splash: TinySplash) -> None:
    directory = ModelDirectory.open(splash.path)
    options = LoadOptions(lookup=False)
    loaded = load(LoadRequest.of(directory, options, 128, paced=False), lambda _: None)

    plain, _ = decoded(loaded, draft=False)
    drafted, proposed = decoded(loaded, draft=True)

    assert loaded.draft.state == "active"
    assert proposed > 0
    assert drafted == plain
    to_float32(splash.model)
    tokens = list(PROMPT)
    for token in plain[:6]:  # mlx-lm's model, without a cache
        assert token == int(mx.argmax(splash.model(mx.array([tokens]))[0, -1]))
        tokens.append(token)
