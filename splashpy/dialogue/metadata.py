# SPDX-License-Identifier: Apache-2.0
"""What the files of a model directory say about its text.

Read are ``tokenizer_config.json``, ``special_tokens_map.json``,
``generation_config.json``, ``config.json`` and the chat template, each of which may be
absent. A template is looked for in ``chat_template.jinja``, then in
``tokenizer_config.json``, then in ``chat_template.json``; the first one found counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splashpy.errors import IntegrityError

DEFAULT_TEMPLATE = "default"
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMetadata:
    """The text side of a model directory.

    Attributes:
        special_tokens: strings of the named tokens, such as ``eos_token``.
        add_bos: what the tokenizer's settings say about a leading BOS; None: nothing.
        eos_ids: end tokens named by number in the model's configurations.
        templates: chat templates by name; empty when the model has none.
    """

    special_tokens: Mapping[str, str]
    add_bos: bool | None
    eos_ids: frozenset[int]
    templates: Mapping[str, str]


def read_metadata(
    directory: Path, *, config: Mapping[str, Any] | None = None
) -> TextMetadata:
    """What ``directory`` says about text.

    Args:
        directory: where the tokenizer's files lie.
        config: the model's configuration; None reads ``config.json``, if any.

    Raises:
        IntegrityError: a file is not the JSON it claims to be.
    """
    settings = read_json(directory / "tokenizer_config.json")
    names = read_json(directory / "special_tokens_map.json") | settings
    if config is None:
        config = read_json(directory / "config.json")
    add_bos = settings.get("add_bos_token")
    return TextMetadata(
        special_tokens=_special_tokens(names),
        add_bos=add_bos if isinstance(add_bos, bool) else None,
        eos_ids=_eos_ids(config) | _eos_ids(_read_generation(directory)),
        templates=_templates(directory, settings),
    )


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty when there is no such file.

    Raises:
        IntegrityError: the file is no JSON object.
    """
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise IntegrityError(
            f"{path} is not valid JSON",
            why=str(error),
            fix=("fetch the model again",),
        ) from None
    if not isinstance(data, dict):
        raise IntegrityError(
            f"{path} holds a JSON {type(data).__name__}, not an object",
            fix=("fetch the model again",),
        )
    return data


def _read_generation(directory: Path) -> dict[str, Any]:
    return read_json(directory / "generation_config.json")


def _special_tokens(names: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name in _NAMED_TOKENS:
        value = names.get(name)
        text = value.get("content") if isinstance(value, Mapping) else value
        if isinstance(text, str):
            found[name] = text
    return found


def _eos_ids(config: Mapping[str, Any]) -> frozenset[int]:
    nested = config.get("text_config")
    value = config.get("eos_token_id")
    ids = value if isinstance(value, list) else [value]
    found = frozenset(item for item in ids if type(item) is int)
    return found | _eos_ids(nested) if isinstance(nested, Mapping) else found


def _templates(directory: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    try:
        text = (directory / "chat_template.jinja").read_text(encoding="utf-8")
    except FileNotFoundError:
        stored = settings.get("chat_template") or read_json(
            directory / "chat_template.json"
        ).get("chat_template")
        return _named_templates(stored)
    except UnicodeDecodeError as error:
        raise IntegrityError(
            f"{directory / 'chat_template.jinja'} is not UTF-8 text",
            why=str(error),
            fix=("fetch the model again",),
        ) from None
    return {DEFAULT_TEMPLATE: text}


def _named_templates(stored: Any) -> dict[str, str]:
    if isinstance(stored, str):
        return {DEFAULT_TEMPLATE: stored}
    items = stored if isinstance(stored, list) else []
    return {
        item["name"]: item["template"]
        for item in items
        if isinstance(item, Mapping)
        and isinstance(item.get("name"), str)
        and isinstance(item.get("template"), str)
    }
