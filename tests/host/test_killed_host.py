# SPDX-License-Identifier: Apache-2.0
"""An engine process that is killed in the middle of an answer, and the next one."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import tiny

from splashpy.client.child import ChildClient
from splashpy.errors import EngineDiedError
from splashpy.protocol import Cycle, Done, Generate, Load, LoadOptions, Ready, Sampling

pytestmark = pytest.mark.e2e

ENDLESS = 200_000  # tokens; minutes of work
PROMPT = "What was read before shall not be read again. " * 9


def until(client: ChildClient, kind: type) -> Any:
    while not isinstance(event := client.receive(60), kind):
        assert event is not None, f"no {kind.__name__} within a minute"
    return event


def answer(client: ChildClient, prompt: str, **fields: Any) -> tuple[str, Done]:
    greedy = Sampling(temperature=0.0, ignore_eos=True)
    client.send(Generate(id="a", prompt=prompt, sampling=greedy, **fields))
    pieces: list[str] = []
    while not isinstance(event := client.receive(60), Done):
        assert event is not None
        pieces += [piece.text for piece in getattr(event, "pieces", ())]
    return "".join(pieces), event


def test_what_was_kept_of_a_prompt_is_found_after_the_engine_was_killed(
    tmp_path: Path,
) -> None:
    model = tiny.write_model(tmp_path / "m", "qwen3_5", max_position_embeddings=ENDLESS)
    options = LoadOptions(
        cache_dir=str(tmp_path / "kv"), cache_disk=1 << 28, no_draft=True
    )
    load, asked = Load(model=str(model), options=options), PROMPT + "And?"
    with ChildClient.spawn(tmp_path / "first.log") as client:
        client.send(load)
        until(client, Ready)
        said, _ = answer(client, asked, max_tokens=8)
        _, read = answer(client, PROMPT, prefill_only=True)
        client.send(Generate(id="b", prompt=asked, max_tokens=ENDLESS))
        until(client, Cycle)
        os.kill(client.process.pid, signal.SIGKILL)
        with pytest.raises(EngineDiedError):
            until(client, Done)
    with ChildClient.spawn(tmp_path / "next.log") as client:
        client.send(load)
        until(client, Ready)
        again, done = answer(client, asked, max_tokens=8)
    assert done.usage.cached >= read.usage.prompt - 1
    assert again == said
