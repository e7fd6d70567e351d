# SPDX-License-Identifier: Apache-2.0
"""Text to token ids and back, with control tokens kept apart from ordinary text.

Two instances of the model's tokenizer are loaded. One is as the files describe it. In
the other the control tokens carry private names (see ``literal.py``), so that no text
can produce a control id. Both are complete before the first call and never changed
afterwards, which is what makes concurrent use safe.

Control tokens are the tokens added to the vocabulary that are flagged as special, are
named as BOS, EOS and so on, look like ``<|…|>``, are reasoning tags, or are markers
(``<…>``, ``[…]``) the chat template writes. Other added tokens, such as runs of white
space, are ordinary text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from splashpy.dialogue.literal import ControlStrings
from splashpy.dialogue.metadata import TextMetadata, read_json, read_metadata
from splashpy.dialogue.reasoning import TAGS
from splashpy.errors import IntegrityError, ModelKindError

# End of a turn in common chat formats; some checkpoints name only the end of a text.
_TURN_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eot|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|end_of_turn|>",
    "<|END_OF_TURN_TOKEN|>",
)
# Where a turn has several messages, <|end|> closes only one of them.
_MESSAGE_START = "<|channel|>"

_LONG = 1 << 15  # characters; fewer take milliseconds
_SURROGATE = re.compile("[\ud800-\udfff]")
_MARKER = re.compile(r"<.+>|\[.+\]", re.DOTALL)
_PIPED = re.compile(r"<\|.+|.+\|>", re.DOTALL)
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


class Tokenizer:
    """The tokenizer of one model; every method may be called from any thread.

    Attributes:
        vocab_size: number of tokens, added ones included.
        bos_token_id: the token that begins a text; None when there is none.
        eos_token_ids: every token that ends an answer: the named EOS token, the ids in
            ``generation_config.json`` and ``config.json``, and well-known
            end-of-turn tokens that the chat template writes.
        adds_bos: whether raw text begins with BOS.
        controls: its control strings, for hiding them in messages.
        byte_level: tokens are spelled in the byte alphabet of GPT-2.
        byte_fallback: characters outside the vocabulary are spelled ``<0xNN>``.
    """

    def __init__(self, definition: dict[str, Any], metadata: TextMetadata) -> None:
        templates = "\n".join(metadata.templates.values())
        named = frozenset(metadata.special_tokens.values())
        added = {
            item["content"]: item.get("special") or item["content"] in named
            for item in definition.get("added_tokens", ())
        }
        special = {text for text, is_special in added.items() if is_special}
        markers = {text for text in added if _is_marker(text, templates)}
        self.controls = ControlStrings(special | markers, also_hidden=TAGS)
        self._plain = _load(definition)
        self._sealed = _load(_renamed(definition, self.controls))

        self.vocab_size = self._plain.get_vocab_size(with_added_tokens=True)
        self.bos_token_id = self._named_id(metadata, "bos_token")
        self.eos_token_ids = frozenset(self._eos_ids(metadata, templates))
        self.adds_bos = self._adds_bos(metadata)
        self.byte_level = _decoders(definition) == ["ByteLevel"]
        self.byte_fallback = "ByteFallback" in _decoders(definition)
        self._special = self.eos_token_ids.union(self._known(special))
        self._controls = frozenset(self._known(special | markers))

    def definition(self) -> str:
        """The contents of ``tokenizer.json``, with control tokens flagged as special.

        For a library that would take those without the flag for ordinary text.
        """
        content = json.loads(self._plain.to_str())
        for token in content["added_tokens"]:
            token["special"] = token["special"] or token["content"] in self.controls
        return json.dumps(content, ensure_ascii=False)

    @classmethod
    def from_directory(
        cls, directory: Path, *, config: Mapping[str, Any] | None = None
    ) -> Tokenizer:
        """The tokenizer whose files lie in ``directory``.

        Args:
            directory: holds ``tokenizer.json`` and, where they exist, the files
                ``metadata.py`` names.
            config: the model's configuration, when it lies elsewhere.

        Raises:
            ModelKindError: there is no ``tokenizer.json``.
            IntegrityError: a file is damaged.
        """
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise ModelKindError(
                f"{directory} has no tokenizer.json",
                why="splashpy reads tokenizers in that format only",
                fix=("choose a model that ships tokenizer.json",),
            )
        metadata = read_metadata(directory, config=config)
        try:
            return cls(read_json(path), metadata)
        # The JSON is foreign: any part of it may have any shape, or be missing.
        except (_BadDefinitionError, KeyError, TypeError, AttributeError) as error:
            raise IntegrityError(
                f"{path} does not describe a tokenizer",
                why=str(error),
                fix=("fetch the model again",),
            ) from None

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Token ids of ``text``; control strings in it become control ids.

        Args:
            text: any text; lone surrogates count as U+FFFD.
            add_special_tokens: begin with BOS where the model wants it.
        """
        ids = _ids(self._plain, text)
        bos = self.bos_token_id if add_special_tokens and self.adds_bos else None
        return ids if bos is None or ids[:1] == [bos] else [bos, *ids]

    def encode_literal(self, text: str) -> list[int]:
        """Token ids of ``text``, in which no part is a control string."""
        return _ids(self._sealed, text)

    def encode_rendered(self, rendered: str) -> list[int]:
        """Token ids of a rendered template whose messages went through ``controls``."""
        return _ids(self._sealed, self.controls.seal(rendered))

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of token ids; ids outside the vocabulary have none."""
        if skip_special_tokens:
            ids = [token_id for token_id in ids if token_id not in self._special]
        return self._plain.decode(list(ids), skip_special_tokens=False)

    def is_special(self, token_id: int) -> bool:
        """Whether ``decode`` leaves this token out."""
        return token_id in self._special

    def id_of(self, token: str) -> int | None:
        """Id of a token by its spelling in the vocabulary."""
        return self._plain.token_to_id(token)

    def control_id(self, text: str) -> int | None:
        """Id of a control token; None for text that is not one."""
        return self.id_of(text) if text in self.controls else None

    @property
    def control_ids(self) -> frozenset[int]:
        """Ids of all control tokens."""
        return self._controls

    def token_of(self, token_id: int) -> str | None:
        """Spelling of a token in the vocabulary; None for an id outside it."""
        return self._plain.id_to_token(token_id)

    def _known(self, texts: Iterable[str]) -> set[int]:
        ids = (self.id_of(text) for text in texts)
        return {token_id for token_id in ids if token_id is not None}

    def _named_id(self, metadata: TextMetadata, name: str) -> int | None:
        text = metadata.special_tokens.get(name)
        return None if text is None else self.id_of(text)

    def _eos_ids(self, metadata: TextMetadata, templates: str) -> set[int]:
        found = {self._named_id(metadata, "eos_token"), *metadata.eos_ids}
        for text in _TURN_ENDS:
            several = text == "<|end|>" and _MESSAGE_START in self.controls
            if text in templates and not several:
                found.add(self.control_id(text))
        return {token_id for token_id in found if token_id is not None}

    def _adds_bos(self, metadata: TextMetadata) -> bool:
        if self.bos_token_id is None:
            return False
        if metadata.add_bos is not None:
            return metadata.add_bos
        start = self._plain.encode("", add_special_tokens=True).ids[:1]
        return start == [self.bos_token_id]


class _BadDefinitionError(Exception):
    """The tokenizers library refuses a definition."""


def _ids(tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
    clean = _SURROGATE.sub("\ufffd", text)
    if len(clean) < _LONG:
        return tokenizer.encode(clean, add_special_tokens=False).ids
    # Of all ways to encode, only this one lets other threads of Python run meanwhile.
    return tokenizer.encode_batch_fast([clean], add_special_tokens=False)[0].ids


def _is_marker(text: str, templates: str) -> bool:
    if _BYTE.fullmatch(text):
        return False
    if _PIPED.fullmatch(text) or text in TAGS:
        return True
    return bool(_MARKER.fullmatch(text)) and text in templates


def _load(definition: dict[str, Any]) -> tokenizers.Tokenizer:
    try:
        tokenizer = tokenizers.Tokenizer.from_str(
            json.dumps(definition, ensure_ascii=False)
        )
    except Exception as error:  # noqa: BLE001 - the library raises bare Exception
        raise _BadDefinitionError(str(error)) from None
    # Some checkpoints were saved with the limits of their training batches.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _renamed(definition: dict[str, Any], controls: ControlStrings) -> dict[str, Any]:
    """The definition with control tokens under their private names, same ids."""

    def rename(text: str) -> str:
        return controls.name(text) if text in controls else text

    model = dict(definition["model"])
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        model["vocab"] = {rename(text): token_id for text, token_id in vocab.items()}
    else:
        model["vocab"] = [[rename(text), score] for text, score in vocab]
    if isinstance(model.get("unk_token"), str):
        model["unk_token"] = rename(model["unk_token"])
    if model.get("merges"):
        model["merges"] = [
            merge for merge in model["merges"] if not _touches(merge, controls)
        ]
    added = [
        {**item, "content": rename(item["content"])}
        for item in definition.get("added_tokens", ())
    ]
    return {**definition, "model": model, "added_tokens": added}


def _touches(merge: str | list[str], controls: ControlStrings) -> bool:
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left + right in controls or left in controls or right in controls


def _decoders(definition: dict[str, Any]) -> list[str]:
    decoder = definition.get("decoder") or {}
    steps = decoder["decoders"] if decoder.get("type") == "Sequence" else [decoder]
    return [step.get("type", "") for step in steps]
