# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from packing.conftest import TinyRecipe

from splashpy.errors import IntegrityError, ModelKindError, PairError
from splashpy.package.fields import Fields
from splashpy.package.frequent_tokens import FILE_NAME as FREQUENT_TOKENS
from splashpy.package.integrity import check_files
from splashpy.package.manifest import Manifest
from splashpy.package.model_directory import ModelDirectory
from splashpy.packing.build import build
from splashpy.packing.draft_part import check_pair, token_map_sha256
from splashpy.packing.recipe import Recipe
from splashpy.packing.target_files import write_safetensors

CONFIG: dict[str, Any] = {
    "architectures": ["DFlash2DraftModel"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "vocab_size": 260,
    "num_target_layers": 2,
    "layer_types": ["sliding_attention"],
    "sliding_window": 64,
    "is_causal": False,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "dflash_config": {
        "block_size": 8,
        "mask_token_id": 259,
        "target_layer_ids": [0, 1],
    },
}

TABLE = """
[draft]
path = "draft"
trained_for = { repo_id = "owner/target", revision = "abc" }
[draft.license]
spdx = "MIT"
text = "draft-terms.txt"
redistribution = "allowed"
"""


def with_draft(tiny: TinyRecipe, config: dict[str, Any]) -> Recipe:
    draft = tiny.folder / "draft"
    draft.mkdir()
    (draft / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_safetensors({"fc.weight": mx.zeros((4, 4))}, draft / "model.safetensors")
    (tiny.folder / "draft-terms.txt").write_text("draft terms", encoding="utf-8")
    with (tiny.folder / "recipe.toml").open("a", encoding="utf-8") as file:
        file.write(TABLE)
    return Recipe.load(tiny.folder / "recipe.toml")


def test_a_package_with_a_drafter_describes_the_pair(
    tiny: TinyRecipe, tmp_path: Path
) -> None:
    recipe = with_draft(tiny, CONFIG)

    path = build(recipe, tmp_path / "tiny", tiny.supply(tmp_path / "cache"))

    manifest = Manifest.open(path)
    check_files(path, manifest, full=True)
    draft, pairing = manifest.draft, manifest.pairing
    assert draft is not None
    assert draft.dflash_config == CONFIG["dflash_config"]
    assert draft.trained_for == ("owner/target", "abc")
    assert (draft.license.spdx, draft.license.text) == ("MIT", "licenses/draft.txt")
    assert (draft.sliding_window, draft.is_causal) == (64, False)
    assert draft.source.repo_id == "packages/tiny/draft"
    assert pairing is not None
    assert (pairing.hidden_size, pairing.vocab_size) == (64, 260)
    assert manifest.tokens.mask_token_id == 259
    assert ModelDirectory.open(path).draft == path / "draft"


def test_the_list_of_frequent_tokens_is_packed_and_part_of_the_digest(
    tiny: TinyRecipe, tmp_path: Path
) -> None:
    before = with_draft(tiny, CONFIG).digest
    (tiny.folder / "draft" / FREQUENT_TOKENS).write_text('{"token_ids": [1, 2]}')
    recipe = Recipe.load(tiny.folder / "recipe.toml")
    assert recipe.digest != before
    path = build(recipe, tmp_path / "tiny", tiny.supply(tmp_path / "cache"))
    packed = path / "draft" / FREQUENT_TOKENS
    assert packed.read_text() == '{"token_ids": [1, 2]}'
    manifest = Manifest.open(path)
    assert f"draft/{FREQUENT_TOKENS}" in {entry.path for entry in manifest.files}
    packed.write_text('{"token_ids": [1, 3]}')
    with pytest.raises(IntegrityError, match="SHA-256"):
        check_files(path, manifest, full=True)
    assert (path / "licenses" / "draft.txt").read_text("utf-8") == "draft terms"


def changed(**changes: Any) -> dict[str, Any]:
    flash = CONFIG["dflash_config"] | changes.pop("flash", {})
    return CONFIG | changes | {"dflash_config": flash}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (changed(hidden_size=32), "hidden_size is 32, the target's 64"),
        (changed(vocab_size=300), "vocab_size is 300, the target's 260"),
        (changed(num_target_layers=8), "8 target layers, the target has 2"),
        (changed(flash={"target_layer_ids": [0, 2]}), "layer 2, the last is 1"),
        (changed(flash={"mask_token_id": 260}), "260 is outside the vocabulary of 260"),
    ],
)
def test_a_drafter_of_another_target_is_refused_with_both_numbers(
    tiny: TinyRecipe, tmp_path: Path, config: dict[str, Any], words: str
) -> None:
    recipe = with_draft(tiny, config)

    with pytest.raises(PairError, match=words):
        build(recipe, tmp_path / "tiny", tiny.supply(tmp_path / "cache"))

    assert not (tmp_path / "tiny").exists()


def test_a_drafter_without_its_mask_token_is_refused(
    tiny: TinyRecipe, tmp_path: Path
) -> None:
    recipe = with_draft(tiny, changed(flash={"mask_token_id": None}))

    with pytest.raises(ModelKindError, match=r"dflash_config\.mask_token_id"):
        build(recipe, tmp_path / "tiny", tiny.supply(tmp_path / "cache"))


def test_a_drafter_cut_short_is_refused(tiny: TinyRecipe, tmp_path: Path) -> None:
    recipe = with_draft(tiny, CONFIG)
    weights = tiny.folder / "draft" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])

    with pytest.raises(IntegrityError, match="cut short"):
        build(recipe, tmp_path / "tiny", tiny.supply(tmp_path / "cache"))


def test_the_token_map_is_lines_of_id_and_token(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    data = {
        "model": {"vocab": {"b": 1, "a\n": 0}},
        "added_tokens": [{"id": 2, "content": "<x>"}],
    }
    path.write_text(json.dumps(data), encoding="utf-8")

    expected = hashlib.sha256(b'0\t"a\\n"\n1\t"b"\n2\t"<x>"\n').hexdigest()
    assert token_map_sha256(path) == expected


def test_a_list_of_scores_is_a_vocabulary_too(tmp_path: Path) -> None:
    """A model of kind Unigram has its tokens in order of id."""
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"vocab": [["a", -1.5], ["b", -2.0]]}}))

    expected = hashlib.sha256(b'0\t"a"\n1\t"b"\n').hexdigest()
    assert token_map_sha256(path) == expected


@pytest.mark.parametrize(
    "data",
    [
        *({}, {"model": 1}, {"model": {}}, {"model": {"vocab": 3}}),
        *({"model": {"vocab": {"a": "0"}}}, {"model": {"vocab": ["ab", 3]}}),
        *({"model": {"vocab": [[1, 2]]}}, {"model": {"vocab": [[[], 2]]}}),
        {"model": {"vocab": {}}, "added_tokens": [{"content": "x"}]},
        {"model": {"vocab": {}}, "added_tokens": [{"id": 0, "content": 5}]},
    ],
)
def test_a_tokenizer_without_a_vocabulary_is_named(tmp_path: Path, data: Any) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data))

    with pytest.raises(ModelKindError, match=r"tokenizer\.json"):
        token_map_sha256(path)


def test_sizes_stand_beside_an_empty_text_part_or_are_missed() -> None:
    draft = Fields(CONFIG, "draft")
    sizes = {"hidden_size": 64, "vocab_size": 260, "num_hidden_layers": 2}

    check_pair(draft, {**sizes, "text_config": {}})
    check_pair(draft, {"text_config": sizes})
    with pytest.raises(ModelKindError, match="vocab_size"):
        check_pair(draft, {"text_config": {**sizes, "vocab_size": None}})
