# SPDX-License-Identifier: Apache-2.0
"""The drafter of a recipe joins a package, if it belongs to the target."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, cast

from splashpy.errors import ModelKindError, PairError
from splashpy.package.components import (
    Draft,
    License,
    Quantization,
    Source,
    SourceFile,
)
from splashpy.package.fields import Fields, read_json
from splashpy.package.integrity import check_safetensors, sha256_file
from splashpy.package.manifest import Pairing
from splashpy.package.model_directory import read_sizes
from splashpy.packing.recipe import DraftPart
from splashpy.version import __version__


def add_draft(
    part: DraftPart, license_terms: License, package: Path, recipe_name: str
) -> tuple[Draft, Pairing, int]:
    """Copy a drafter into ``draft/`` and describe it.

    Args:
        part: the recipe's drafter.
        license_terms: its terms, with ``text`` inside the package.
        package: directory with ``target/`` and ``tokenizer/``.
        recipe_name: folder under packages/ it comes from.

    Returns:
        The manifest's ``draft`` and ``pairing``, and the mask token id.

    Raises:
        PairError: drafter and target do not fit; names the two values.
        ModelKindError: its config.json lacks a key.
        IntegrityError: its weights are damaged.
    """
    fields = _fields(part.directory)
    check_pair(fields, read_json(package / "target" / "config.json"))
    check_safetensors(part.directory / "model.safetensors")
    (package / "draft").mkdir()
    for file in part.files():
        shutil.copyfile(file, package / "draft" / file.name)
    return describe_draft(
        package, part.trained_for, _source(part, recipe_name), license_terms
    )


def describe_draft(
    package: Path, trained_for: tuple[str, str], source: Source, terms: License
) -> tuple[Draft, Pairing, int]:
    """What a manifest says about the drafter in ``draft/`` of a package.

    Args:
        package: directory with ``target/``, ``tokenizer/`` and ``draft/``.
        trained_for: (repository, revision) of the target it was trained with.
        source: where the drafter came from.
        terms: its licence.

    Returns:
        The manifest's ``draft`` and ``pairing``, and the mask token id.

    Raises:
        ModelKindError: its config.json lacks a key.
    """
    fields = _fields(package / "draft")
    flash = fields.object("dflash_config")
    draft = Draft(
        architecture=_architecture(fields),
        dflash_config=flash.data,
        layer_types=fields.texts("layer_types"),
        sliding_window=fields.data.get("sliding_window"),
        is_causal=fields.data.get("is_causal"),
        rope=fields.data.get("rope_parameters") or {},
        quantization=_quantization(fields),
        trained_for=trained_for,
        source=source,
        license=terms,
    )
    pairing = Pairing(
        hidden_size=fields.integer("hidden_size"),
        vocab_size=fields.integer("vocab_size"),
        token_map_sha256=token_map_sha256(package / "tokenizer" / "tokenizer.json"),
    )
    return draft, pairing, flash.integer("mask_token_id")


def token_map_sha256(tokenizer: Path) -> str:
    """SHA-256 over ``id<TAB>token`` lines in order of id; tokens as JSON strings."""
    fields = Fields(read_json(tokenizer), str(tokenizer))
    ids = {index: token for token, index in vocabulary(fields).items()}
    ids |= {
        token.integer("id"): token.text("content", default="")
        for token in fields.objects("added_tokens")
    }
    lines = (f"{index}\t{json.dumps(ids[index])}\n" for index in sorted(ids))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def vocabulary(tokenizer: Fields) -> dict[str, int]:
    """Token to id in a tokenizer.json, without the added tokens.

    A model of kind Unigram lists tokens with their scores, in order of id.

    Raises:
        ModelKindError: it has no vocabulary, or one of another form.
    """
    found: Any = tokenizer.object("model").data.get("vocab")
    with contextlib.suppress(TypeError, ValueError):
        if isinstance(found, list):
            found = {token: index for index, (token, _) in enumerate(found)}
    pairs = found.items() if isinstance(found, dict) else [(None, None)]
    if not all(isinstance(text, str) and type(index) is int for text, index in pairs):
        raise ModelKindError(
            f"{tokenizer.file}: model.vocab is neither tokens with ids nor with scores"
        )
    return cast("dict[str, int]", found)


def check_pair(draft: Fields, config: dict[str, Any]) -> None:
    """Refuse a drafter that was not made for a target.

    Args:
        draft: the drafter's config.json.
        config: the target's.

    Raises:
        PairError: a size or an id does not fit; names both numbers.
        ModelKindError: one of them is missing, or no number.
    """
    hidden_size, num_layers, vocab_size = read_sizes(Fields(config, "the target"))
    flash = draft.object("dflash_config")
    for key, value in (("hidden_size", hidden_size), ("vocab_size", vocab_size)):
        if draft.integer(key) != value:
            raise PairError(
                f"the drafter's {key} is {draft.data[key]}, the target's {value}"
            )
    if draft.integer("num_target_layers", default=num_layers) != num_layers:
        raise PairError(
            f"the drafter was made for {draft.data['num_target_layers']} target "
            f"layers, the target has {num_layers}"
        )
    beyond = [i for i in flash.integers("target_layer_ids") if i >= num_layers]
    if beyond:
        raise PairError(
            f"the drafter reads target layer {beyond[0]}, the last is {num_layers - 1}"
        )
    mask = flash.integer("mask_token_id")
    if mask >= vocab_size:
        raise PairError(
            f"the mask token {mask} is outside the vocabulary of {vocab_size}"
        )


def _fields(directory: Path) -> Fields:
    path = directory / "config.json"
    return Fields(read_json(path), str(path))


def _architecture(fields: Fields) -> str:
    names = fields.texts("architectures")
    return names[0] if names else "DFlash2DraftModel"


def _quantization(fields: Fields) -> Quantization | None:
    packed = fields.optional_object("quantization")
    if packed is None:
        return None
    return Quantization(
        bits=packed.integer("bits", low=1),
        group_size=packed.integer("group_size", low=1),
        mode=packed.text("mode", default="affine"),
    )


def _source(part: DraftPart, recipe_name: str) -> Source:
    return Source(
        kind="recipe",
        repo_id=f"packages/{recipe_name}/{part.directory.name}",
        revision=__version__,
        files=tuple(
            SourceFile(
                path=file.name, size=file.stat().st_size, sha256=sha256_file(file)
            )
            for file in part.files()
        ),
    )
