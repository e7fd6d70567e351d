# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packing.tiny_gguf import tiny_gguf
from tokenizers import Tokenizer
from tokenizers.normalizers import NFC

from splashpy.packing.gguf import read_gguf


def files_of(kind: str, directory: Path) -> dict[str, bytes]:
    return dict(read_gguf(tiny_gguf(kind).write(directory / "t.gguf")).tokenizer)


@pytest.fixture(scope="module")
def smollm(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    files = files_of("llama", tmp_path_factory.mktemp("smollm"))
    return Tokenizer.from_str(files["tokenizer.json"].decode())


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    files = files_of("qwen3", tmp_path_factory.mktemp("qwen2"))
    return Tokenizer.from_str(files["tokenizer.json"].decode())


@given(text=st.text(max_size=30))
def test_every_text_survives_smollms_splitting(smollm: Tokenizer, text: str) -> None:
    ids = smollm.encode(text).ids

    assert smollm.decode(ids, skip_special_tokens=False) == text


@given(text=st.text(max_size=30))
def test_every_text_survives_qwens_up_to_its_normal_form(
    qwen2: Tokenizer, text: str
) -> None:
    ids = qwen2.encode(text).ids

    assert qwen2.decode(ids, skip_special_tokens=False) == NFC().normalize_str(text)


def test_words_and_digits_are_split_as_named(
    smollm: Tokenizer, qwen2: Tokenizer
) -> None:
    def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
        split = tokenizer.pre_tokenizer
        assert split is not None
        return [piece for piece, _ in split.pre_tokenize_str(text)]

    text = "We'll a12\n\nb"
    assert pieces(smollm, text) == ["We", "'ll", "Ġa", "1", "2", "Ċ", "Ċ", "b"]
    assert pieces(qwen2, text) == ["We", "'ll", "Ġa", "1", "2", "ĊĊ", "b"]


def test_control_tokens_are_special_and_the_rest_is_not(smollm: Tokenizer) -> None:
    ids = smollm.encode("<|start|>that<|end|>").ids

    assert ids[0] == 1
    assert ids[-1] == 0
    assert smollm.decode(ids) == "that"


def test_the_companions_name_the_special_tokens(tmp_path: Path) -> None:
    files = files_of("llama", tmp_path)

    config = json.loads(files["tokenizer_config.json"])
    assert (config["eos_token"], config["bos_token"]) == ("<|end|>", "<|start|>")
    assert config["model_max_length"] == 128
    assert json.loads(files["generation_config.json"]) == {
        "eos_token_id": 0,
        "bos_token_id": 1,
    }
    assert files["chat_template.jinja"].startswith(b"{% for m in messages %}")


def test_a_file_without_a_template_gets_none(tmp_path: Path) -> None:
    tiny = tiny_gguf()
    del tiny.metadata["tokenizer.chat_template"]

    parts = read_gguf(tiny.write(tmp_path / "t.gguf"))

    assert "chat_template.jinja" not in parts.tokenizer
