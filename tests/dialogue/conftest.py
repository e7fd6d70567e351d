# SPDX-License-Identifier: Apache-2.0
"""Small real tokenizers, chat templates written for the tests, and model folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from splashpy.dialogue.template import ChatTemplate
from splashpy.dialogue.tokenizer import Tokenizer

FOLDER = Path(__file__).parent / "templates"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
CORPUS = (
    "the quick brown fox jumps over the lazy dog and the dog sleeps",
    "Beta gamma delta. Příliš žluťoučký kůň úpěl ďábelské ódy. 日本語のテキスト",
    "def f(x):\n    return x + 1\n\n<b>bold</b> 12345 🙂🙃",
)


def byte_level() -> tokenizers.Tokenizer:
    """256 byte tokens and control tokens, no merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {character: number for number, character in enumerate(alphabet)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _with_controls(tokenizer)


def merged() -> tokenizers.Tokenizer:
    """Byte-level BPE with merges, and white-space runs as ordinary added tokens."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("    ", normalized=False)])
    return _with_controls(tokenizer)


def byte_fallback() -> tokenizers.Tokenizer:
    """SentencePiece BPE as Llama 2 has it: ▁ for spaces, <0xNN> for the rest."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words += ["▁", *"abcdefghijklmnopqrstuvwxyz", "th", "the", "▁the", "▁a", "▁▁"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "a"), ("▁", "▁")]
    tokenizer = tokenizers.Tokenizer(
        models.BPE(
            vocab={word: number for number, word in enumerate(words)},
            merges=merges,
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return _with_controls(tokenizer)


def metaspace() -> tokenizers.Tokenizer:
    """A Unigram vocabulary that contains its control tokens as pieces."""
    pieces = [(text, 0.0) for text in (*SPECIAL, *MARKERS)]
    pieces += [("<unk>", 0.0), ("▁", -2.0), ("▁the", -3.0), ("the", -4.0)]
    pieces += [(character, -5.0) for character in "abcdefghijklmnopqrstuvwxyz<>|/_é日"]
    tokenizer = tokenizers.Tokenizer(
        models.Unigram(pieces, unk_id=len(SPECIAL) + len(MARKERS), byte_fallback=False)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    return _with_controls(tokenizer)


def word_piece() -> tokenizers.Tokenizer:
    """Continuations begin with ##, and the decoder puts the spaces."""
    words = ["[UNK]", "the", "fox", "##es", "##s", ".", "a"]
    vocab = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return _with_controls(tokenizer)


def _with_controls(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in SPECIAL]
    )
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in MARKERS])
    return tokenizer


BUILDERS = (byte_level, merged, byte_fallback, metaspace, word_piece)


def template_source(name: str) -> str:
    return (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def source() -> Callable[[str], str]:
    """Text of a template in ``templates/``."""
    return template_source


@pytest.fixture(scope="session")
def write_model(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Path]:
    """Write a model folder: a tokenizer, a template, and JSON files by name."""

    def write(
        tokenizer: tokenizers.Tokenizer | None = None,
        template: str | None = None,
        **files: Mapping[str, Any],
    ) -> Path:
        folder = tmp_path_factory.mktemp("model")
        if tokenizer is not None:
            tokenizer.save(str(folder / "tokenizer.json"))
        if template is not None:
            (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
        for name, content in files.items():
            (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
        return folder

    return write


@pytest.fixture(scope="session", params=BUILDERS, ids=lambda build: build.__name__)
def any_tokenizer(
    request: pytest.FixtureRequest, write_model: Callable[..., Path]
) -> Tokenizer:
    """Each kind of tokenizer, with the Qwen3 template beside it."""
    return Tokenizer.from_directory(
        write_model(request.param(), template_source("qwen3"))
    )


@pytest.fixture(scope="session")
def byte_tokenizer(write_model: Callable[..., Path]) -> Tokenizer:
    """One token per byte; <|im_end|> ends a turn; <think> and </think> are tokens."""
    return Tokenizer.from_directory(
        write_model(
            byte_level(),
            template_source("qwen3"),
            tokenizer_config={"eos_token": "<|im_end|>"},
        )
    )


@pytest.fixture(scope="session")
def fallback_tokenizer(write_model: Callable[..., Path]) -> Tokenizer:
    """Spaces are ▁, characters outside the vocabulary are <0xNN>."""
    return Tokenizer.from_directory(write_model(byte_fallback()))


@pytest.fixture(scope="session")
def plain_tokenizer(write_model: Callable[..., Path]) -> Tokenizer:
    """One token per byte, and no reasoning tags in the vocabulary."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {character: number for number, character in enumerate(alphabet)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return Tokenizer.from_directory(
        write_model(tokenizer, tokenizer_config={"eos_token": "<|im_end|>"})
    )


@pytest.fixture(scope="session")
def make_template() -> Callable[[str], ChatTemplate]:
    """The template of a name in ``templates/``, on a fixed day."""

    def make(name: str) -> ChatTemplate:
        return ChatTemplate(
            {"default": template_source(name)},
            special_tokens={"bos_token": "<bos>"},
            clock=lambda: datetime(2025, 3, 9, 12, 0),
        )

    return make


@pytest.fixture
def bos_tokenizer() -> tokenizers.Tokenizer:
    """A definition whose post-processor begins every text with <s>."""
    tokenizer = byte_level()
    tokenizer.add_special_tokens(["<s>"])
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", bos)]
    )
    return tokenizer


@pytest.fixture
def byte_definition() -> tokenizers.Tokenizer:
    """A fresh byte tokenizer to be written or changed by a test."""
    return byte_level()


@pytest.fixture(scope="session")
def make_byte_definition() -> Callable[[], tokenizers.Tokenizer]:
    """Makes byte tokenizers to be changed."""
    return byte_level
