# SPDX-License-Identifier: Apache-2.0
"""What becomes of the chunks of a server that is no splashpy."""

from __future__ import annotations

from typing import Any

import pytest

from splashpy.client.chunks import ChunkReader, body_of, failure_of
from splashpy.protocol import Cycle, Done, Generate, Prefill, Sampling


def chunk(finish: str | None = None, **delta: str) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": finish}]}


def test_texts_become_pieces_and_counts_become_the_end() -> None:
    reader = ChunkReader("a")
    progress = {"prompt_progress": {"total": 9, "cache": 3, "processed": 6}}
    usage = {"prompt_tokens": 9, "completion_tokens": 2}
    (prefill,) = reader.take(progress)
    (thought,) = reader.take(chunk(reasoning_content="hm"))
    (word,) = reader.take(chunk(content="yes"))
    assert reader.take(chunk("length")) == []
    assert reader.take({"choices": [], "usage": usage}) == []
    (done,) = reader.end()

    assert isinstance(prefill, Prefill)
    assert isinstance(thought, Cycle)
    assert isinstance(word, Cycle)
    assert isinstance(done, Done)
    assert (prefill.total, prefill.cached, prefill.processed) == (9, 3, 6)
    assert [piece.channel for piece in (*thought.pieces, *word.pieces)] == ["r", "c"]
    assert (done.reason, done.usage.prompt, done.usage.completion) == ("length", 9, 2)
    assert reader.end() == []


def test_a_stream_that_ends_in_an_error_fails() -> None:
    reader = ChunkReader("a")
    (failure,) = reader.take({"error": {"message": "out of it", "code": "x"}})
    assert (failure.id, failure.message) == ("a", "out of it")
    assert reader.end() == []


@pytest.mark.parametrize(
    ("code", "known"),
    [
        ("context_exceeds_memory", "E-FIT"),
        ("insufficient_memory", "E-MEMORY"),
        ("queue_full", "E-SERVER"),
    ],
)
def test_an_error_of_our_own_server_keeps_its_code(code: str, known: str) -> None:
    assert failure_of("a", {"message": "no", "code": code}, 503).code == known


def test_chunks_of_any_shape_are_survived() -> None:
    reader = ChunkReader("a")
    for odd in ({}, {"choices": [None]}, {"choices": None}, {"splashpy": 3}):
        assert reader.take(odd) == []
    assert failure_of("a", None).message


def test_only_wishes_that_were_made_are_sent() -> None:
    command = Generate(
        id="a",
        messages=({"role": "user", "content": "hi"},),
        sampling=Sampling(temperature=0.0, logit_bias=((7, 1.5),)),
        draft=False,
    )
    body = body_of(command, "m")
    assert body["temperature"] == 0.0
    assert body["logit_bias"] == {"7": 1.5}
    assert body["speculative"] is False
    assert not {"top_k", "seed", "max_tokens", "continue_final_message"} & set(body)
