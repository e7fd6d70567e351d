# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of a GGUF file, written as the files Hugging Face tokenizers have.

Only byte-level BPE is supported (``tokenizer.ggml.model`` = ``gpt2``). GGUF names the
splitting of text before BPE but does not describe it; ``_SPLITS`` holds what the names
stand for. tokenizer.json is written key by key in the order of the tokenizers library,
so that for SmolLM2 it equals the published file byte for byte.
"""

from __future__ import annotations

import json
from typing import Any

from splashpy.errors import ModelKindError
from splashpy.packing.gguf_metadata import Metadata
from splashpy.packing.target_files import json_bytes

_CONTROL = 3  # token_type of tokens that text cannot produce

_BYTE_LEVEL = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}

_QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_SPLITS: dict[str, list[dict[str, Any]]] = {
    # Every digit by itself, then the words and spaces of GPT-2.
    "smollm": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", **_BYTE_LEVEL},
    ],
    "qwen2": [
        {
            "type": "Split",
            "pattern": {"Regex": _QWEN2_PATTERN},
            "behavior": "Isolated",
            "invert": False,
        },
        {"type": "ByteLevel", **_BYTE_LEVEL, "use_regex": False},
    ],
}

_NORMALIZERS = {"qwen2": {"type": "NFC"}}

_NAMED = ("bos", "eos", "padding", "unknown")
_SHORT = {"padding": "pad", "unknown": "unk"}


def tokenizer_files(metadata: Metadata, context_max: int) -> dict[str, bytes]:
    """File name to content: tokenizer.json and its companions.

    Raises:
        ModelKindError: another kind of tokenizer, or an unknown way of splitting.
    """
    files = {
        "tokenizer.json": _tokenizer_json(metadata),
        "tokenizer_config.json": json_bytes(_tokenizer_config(metadata, context_max)),
        "generation_config.json": json_bytes(token_config(metadata)),
    }
    if metadata.has("tokenizer.chat_template"):
        template = metadata.text("tokenizer.chat_template")
        files["chat_template.jinja"] = template.encode()
    return files


def special_ids(metadata: Metadata) -> tuple[tuple[int, ...], dict[str, int]]:
    """The tokens that end an answer, ascending, and the ids of bos and pad.

    Raises:
        ModelKindError: the file names no end token.
    """
    eos = {metadata.integer("tokenizer.ggml.eos_token_id")}
    if metadata.has("tokenizer.ggml.eot_token_id"):
        eos.add(metadata.integer("tokenizer.ggml.eot_token_id"))
    ids = _named_ids(metadata)
    return tuple(sorted(eos)), {
        name: ids[name] for name in ("bos", "pad") if name in ids
    }


def token_config(metadata: Metadata) -> dict[str, Any]:
    """The token ids that config.json and generation_config.json state."""
    eos, special = special_ids(metadata)
    return {
        "eos_token_id": eos[0] if len(eos) == 1 else list(eos),
        **{f"{name}_token_id": index for name, index in special.items()},
    }


def _tokenizer_json(metadata: Metadata) -> bytes:
    kind = metadata.text("tokenizer.ggml.model")
    split = metadata.text("tokenizer.ggml.pre", default="")
    if kind != "gpt2" or split not in _SPLITS:
        raise ModelKindError(
            f"{metadata.file}: tokenizer {kind!r} with splitting {split!r} is not "
            "supported",
            why=f"supported: gpt2 with {', '.join(_SPLITS)}",
        )
    tokens = metadata.texts("tokenizer.ggml.tokens")
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": index,
                "content": tokens[index],
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for index in _control_ids(metadata)
        ],
        "normalizer": _NORMALIZERS.get(split),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _SPLITS[split]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", **_BYTE_LEVEL, "add_prefix_space": True},
        "model": _bpe(tokens, metadata.texts("tokenizer.ggml.merges")),
    }
    return json.dumps(document, ensure_ascii=False, indent=2).encode()


def _bpe(tokens: list[str], merges: list[str]) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: index for index, token in enumerate(tokens)},
        "merges": merges,
    }


def _tokenizer_config(metadata: Metadata, context_max: int) -> dict[str, Any]:
    tokens = metadata.texts("tokenizer.ggml.tokens")
    ids = _named_ids(metadata)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_max,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        **{f"{name}_token": tokens[index] for name, index in ids.items()},
    }


def _named_ids(metadata: Metadata) -> dict[str, int]:
    """Ids by Hugging Face's names: bos, eos, pad, unk; those the file has."""
    count = metadata.count("tokenizer.ggml.tokens")
    ids = {}
    for name in _NAMED:
        key = f"tokenizer.ggml.{name}_token_id"
        if metadata.has(key):
            ids[_SHORT.get(name, name)] = index = metadata.integer(key)
            if index >= count:
                raise ModelKindError(
                    f"{metadata.file}: {key} is {index}, the vocabulary has {count}"
                )
    return ids


def _control_ids(metadata: Metadata) -> list[int]:
    types = metadata.integers("tokenizer.ggml.token_type")
    return [index for index, kind in enumerate(types) if kind == _CONTROL]
