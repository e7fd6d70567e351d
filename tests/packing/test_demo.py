# SPDX-License-Identifier: Apache-2.0
"""The real demo package: SmolLM2-135M-Instruct, built by its recipe."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model, load_tokenizer
from packing.gguf_reference import dequantized, reference_model
from tokenizers import Tokenizer

from splashpy.models.loading import to_float32
from splashpy.package.integrity import check_files, sha256_file
from splashpy.package.manifest import Manifest
from splashpy.package.model_directory import ModelDirectory

PROMPT = [504, 3575, 282, 4649, 314]  # "The capital of France is"


@cache
def float32_model(target: Path) -> Any:
    model, _ = load_model(target)
    to_float32(model)
    return model


def test_every_file_is_as_recorded(demo: Path) -> None:
    manifest = Manifest.open(demo)

    check_files(demo, manifest, full=True)

    assert manifest.target.license.spdx == "Apache-2.0"
    assert ModelDirectory.open(demo).context_max == 8192


def test_the_weights_are_the_same_on_every_computer(demo: Path) -> None:
    """Made by this converter from the Q4_1 file, mlx 0.32.4, Linux x86-64."""
    assert sha256_file(demo / "target" / "model.safetensors") == (
        "c02143334ed01ff109ddaada11000af60ec06987aa9bf7f79a816c18001c3b03"
    )


def test_the_tokenizer_is_the_published_one_byte_for_byte(demo: Path) -> None:
    """Digest of tokenizer.json in HuggingFaceTB/SmolLM2-135M-Instruct at 12fd25f."""
    assert sha256_file(demo / "tokenizer" / "tokenizer.json") == (
        "9ca9acddb6525a194ec8ac7a87f24fbba7232a9a15ffa1af0c1224fcd888e47c"
    )


def test_logits_equal_those_of_the_file_itself(demo: Path, demo_gguf: Path) -> None:
    arrays: Any = mx.load(str(demo_gguf))
    config = ModelDirectory.open(demo).config
    ids = mx.array([PROMPT])

    reference = reference_model(config, dequantized(arrays))(ids)
    logits = float32_model(demo / "target")(ids)

    # Equal numbers summed in another row order; 30 layers of float32, logits near 30.
    assert mx.allclose(logits, reference, rtol=1e-4, atol=2e-3)
    assert mx.array_equal(mx.argmax(logits, -1), mx.argmax(reference, -1))


def test_it_answers_sensibly_through_plain_mlx_lm(demo: Path) -> None:
    model = float32_model(demo / "target")
    tokenizer: Any = load_tokenizer(demo / "tokenizer")
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    pending = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    answer: list[int] = []
    state = make_prompt_cache(model)

    while len(answer) < 12 and answer[-1:] != [2]:
        logits = model(mx.array([pending]), cache=state)[0, -1]
        pending = [int(mx.argmax(logits))]
        answer += pending

    assert tokenizer.eos_token_ids == {2}
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"


@pytest.fixture(scope="module")
def tokenizer(demo: Path) -> Tokenizer:
    return Tokenizer.from_file(str(demo / "tokenizer" / "tokenizer.json"))


# The published vocabulary has no token for these control characters, nor for the
# first byte of U+40000 and beyond (unassigned planes).
encodable = st.characters(
    codec="utf-8",
    max_codepoint=0x3FFFF,
    exclude_characters="\x04\x06\x13\x14\x16\x1d",
)


@given(text=st.text(encodable, max_size=40))
def test_text_survives_the_tokenizer(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text).ids

    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_digits_are_split_one_by_one(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("in 2025").tokens == ["in", "Ġ", "2", "0", "2", "5"]
