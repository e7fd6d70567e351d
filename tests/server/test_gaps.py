# SPDX-License-Identifier: Apache-2.0
"""Gaps filled by a real, tiny model whose vocabulary has the tokens for them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
from server_kit import Running, ServerSettings

from splashpy.protocol import Load, LoadOptions

FILE = {
    "input_prefix": "def one():\n    return ",
    "input_suffix": "\n\n\ndef two():\n    return 2\n",
    "input_extra": [{"filename": "other.py", "text": "def three():\n    return 3\n"}],
}


@pytest.fixture(scope="module")
def gaps(speaker: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("coder")
    model = tiny.write_terse(folder, "llama", vocab_size=320)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(speaker / name, model / name)
    options = LoadOptions(lookup=True, cache_disk=0)
    load = Load(model=str(model), name="coder", options=options)
    with Running(ServerSettings(model="coder"), load=load) as server:
        yield server.wait_ready()


def test_a_gap_is_filled_alike_with_drafts_and_without(gaps: Running) -> None:
    asked = {**FILE, "n_predict": 24, "temperature": 0}

    drafted = gaps.post("/infill", asked).json
    plain = gaps.post("/infill", {**asked, "speculative": False}).json
    streamed = gaps.post("/infill", {**asked, "stream": True}).events

    assert drafted["content"] == plain["content"]
    assert "".join(event["content"] for event in streamed) == plain["content"]
    assert 0 < drafted["tokens_predicted"] <= 24
    assert drafted["timings"]["draft_n"] > 0


def test_a_window_longer_than_any_text_is_the_context(gaps: Running) -> None:
    asked = {**FILE, "n_predict": 8, "top_k": 1, "repeat_penalty": 1.1}

    whole = gaps.post("/infill", {**asked, "repeat_last_n": -1}).json
    longer = gaps.post("/infill", {**asked, "repeat_last_n": 2**63 - 1})

    assert longer.status == 200
    assert longer.json["content"] == whole["content"]


def test_what_was_typed_before_is_not_read_again(gaps: Running) -> None:
    warm = {**FILE, "n_predict": 0, "t_max_predict_ms": 1, "response_fields": [""]}
    typed = {**FILE, "prompt": "on", "n_predict": 4}

    assert gaps.post("/infill", warm).json == {}
    answer = gaps.post("/infill", typed).json

    assert answer["timings"]["cache_n"] >= len(FILE["input_prefix"])


def test_a_completion_with_a_suffix_fills_the_same_gap(gaps: Running) -> None:
    """Without other files, whose place only the native endpoint has."""
    prefix, suffix = FILE["input_prefix"], FILE["input_suffix"]
    native = gaps.post(
        "/infill",
        {"input_prefix": prefix, "input_suffix": suffix, "n_predict": 8, "top_k": 1},
    ).json

    body = {"prompt": prefix, "suffix": suffix, "max_tokens": 8, "top_k": 1}
    answer = gaps.post("/v1/completions", body).json

    assert answer["choices"][0]["text"] == native["content"]
    assert answer["usage"]["prompt_tokens"] == native["tokens_evaluated"]
