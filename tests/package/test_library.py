# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from splashpy.errors import (
    IntegrityError,
    ModelKindError,
    ModelMissingError,
    ModelUnknownError,
    UsageError,
)
from splashpy.package.library import Library
from splashpy.paths import Paths

MakeModel = Callable[..., Path]
MakePackage = Callable[[Path], Path]

COMMIT = "c" * 40


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.under(tmp_path / "home")


@pytest.fixture
def hub_cache(tmp_path: Path) -> Path:
    return tmp_path / "hub"


@pytest.fixture
def library(paths: Paths, hub_cache: Path) -> Library:
    return Library(paths, hub_cache)


@pytest.fixture
def demo(paths: Paths, make_package: MakePackage) -> Path:
    return make_package(paths.packages / "smollm2-135m")


@pytest.fixture
def make_snapshot(hub_cache: Path, make_model: MakeModel) -> Callable[..., Path]:
    """A repository in the cache, its files links to blobs as the Hub client leaves."""

    def make(repo: str, **changes: object) -> Path:
        folder = hub_cache / f"models--{repo.replace('/', '--')}"
        path = make_model(folder / "snapshots" / COMMIT, **changes)
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text(COMMIT, encoding="utf-8")
        (folder / "blobs").mkdir()
        for number, file in enumerate(sorted(path.iterdir())):
            file.rename(folder / "blobs" / f"blob{number}")
            file.symlink_to(f"../../blobs/blob{number}")
        return path

    return make


def test_packages_come_first_and_the_demo_has_its_short_name(
    library: Library,
    demo: Path,
    paths: Paths,
    make_package: MakePackage,
    make_snapshot: Callable[..., Path],
) -> None:
    make_package(paths.packages / "mine")
    snapshot = make_snapshot("mlx-community/Tiny-4bit")

    installed = library.installed()

    assert [(model.name, model.origin, model.path) for model in installed] == [
        ("mine", "package", paths.packages / "mine"),
        ("demo", "package", demo),
        ("mlx-community/Tiny-4bit", "hub", snapshot),
    ]
    assert installed[-1].revision == COMMIT


def test_nothing_installed_is_an_empty_list(library: Library) -> None:
    assert library.installed() == []


def test_work_in_progress_is_not_listed(
    library: Library, paths: Paths, make_package: MakePackage
) -> None:
    make_package(paths.packages / "demo.partial")
    make_package(paths.packages / ".removed-demo")

    assert library.installed() == []


def test_an_incomplete_model_is_not_listed_and_says_why(
    library: Library, make_snapshot: Callable[..., Path]
) -> None:
    snapshot = make_snapshot("owner/model")
    placed = {"a": "model-00001-of-00002.safetensors"}
    index = snapshot / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": placed}), encoding="utf-8")

    assert library.installed() == []
    with pytest.raises(IntegrityError, match="incomplete download") as failure:
        library.find("owner/model")
    assert failure.value.fix == ("splashpy pull owner/model --force",)


def test_a_snapshot_without_unrelated_files_is_found_without_a_socket(
    library: Library,
    make_snapshot: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cache holds no README.md and no .gitattributes."""
    snapshot = make_snapshot("owner/model")
    monkeypatch.setattr(socket, "socket", None)

    assert library.find("owner/model").path == snapshot
    assert library.find(f"owner/model@{COMMIT[:8]}").path == snapshot


@pytest.mark.parametrize("name", ["demo", "Demo", "smollm2-135m"])
def test_the_demo_is_found_by_each_of_its_names(
    library: Library, demo: Path, name: str
) -> None:
    assert library.find(name).path == demo


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("demo", "splashpy pull demo"),
        ("qwen3.8-27b", "splashpy pull qwen3.8-27b"),
        ("owner/model", "splashpy pull owner/model"),
        ("owner/model@main", "splashpy pull owner/model@main"),
    ],
)
def test_a_model_that_is_not_installed_says_how_to_get_it(
    library: Library, name: str, command: str
) -> None:
    with pytest.raises(ModelMissingError, match="is not installed") as failure:
        library.find(name)

    assert failure.value.fix == (command,)


def test_an_unknown_name_offers_the_nearest_three(
    library: Library, paths: Paths, make_package: MakePackage
) -> None:
    make_package(paths.packages / "demos")

    with pytest.raises(ModelUnknownError, match="'demoo'") as failure:
        library.find("demoo")

    nearest = failure.value.why.removeprefix("nearest names: ").split(", ")
    assert len(nearest) == 3
    assert set(nearest[:2]) == {"demo", "demos"}


def test_a_directory_in_reach_is_suggested_as_a_path(
    library: Library,
    tmp_path: Path,
    make_model: MakeModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_model(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ModelUnknownError) as failure:
        library.find("mine")

    assert failure.value.fix == ("splashpy chat ./mine",)
    assert library.find("./mine").origin == "directory"


def test_a_hub_model_of_another_kind_is_refused_but_not_listed(
    library: Library, make_snapshot: Callable[..., Path]
) -> None:
    make_snapshot("owner/embedder", vocab_size=...)

    assert library.installed() == []
    with pytest.raises(ModelKindError, match="vocab_size is missing"):
        library.find("owner/embedder")


def test_the_default_is_the_wish_then_the_only_model_then_the_demo(
    library: Library,
    paths: Paths,
    make_package: MakePackage,
    make_snapshot: Callable[..., Path],
) -> None:
    assert library.default_model("x/y") == "x/y"
    assert library.default_model() == "demo"
    make_package(paths.packages / "mine")
    assert library.default_model() == "mine"
    make_snapshot("owner/model")
    assert library.default_model() == "demo"


def test_use_is_remembered(library: Library, demo: Path) -> None:
    before = library.find("demo")
    assert before.last_used is None

    library.touch(before)

    last_used = library.find("demo").last_used
    assert last_used is not None
    assert last_used >= demo.stat().st_mtime


def test_use_on_a_read_only_disk_is_no_error(
    paths: Paths, hub_cache: Path, demo: Path
) -> None:
    paths.state.parent.mkdir(parents=True, exist_ok=True)
    paths.state.write_text("a file where a directory belongs", encoding="utf-8")
    library = Library(paths, hub_cache)

    library.touch(library.find("demo"))

    assert library.find("demo").last_used is None


def test_removing_a_package_frees_its_bytes(library: Library, demo: Path) -> None:
    size = library.find("demo").size_bytes

    planned = library.remove("demo", dry_run=True)
    assert planned.paths == ((demo, size),)
    assert demo.exists()

    assert library.remove("demo") == planned
    assert list(demo.parent.iterdir()) == []


def test_a_damaged_package_can_be_removed(library: Library, demo: Path) -> None:
    (demo / "splashpy.json").write_text("{", encoding="utf-8")

    library.remove("demo")

    assert not demo.exists()


def test_a_removal_that_was_interrupted_is_finished_by_the_next(
    library: Library, demo: Path, make_package: MakePackage
) -> None:
    left_over = make_package(demo.with_name(".removed-smollm2-135m"))

    library.remove("demo")

    assert not left_over.exists()


def test_removing_a_repository_goes_through_the_hub_cache(
    library: Library, hub_cache: Path, make_snapshot: Callable[..., Path]
) -> None:
    make_snapshot("owner/model")
    repo = hub_cache / "models--owner--model"
    size = library.find("owner/model").size_bytes

    planned = library.remove("owner/model", dry_run=True)
    assert planned.freed_bytes == size
    assert [path for path, _ in planned.paths] == [repo]
    assert repo.exists()

    library.remove("owner/model")
    assert not repo.exists()


def test_a_persons_own_directory_is_not_removed(
    library: Library, make_model: MakeModel
) -> None:
    path = make_model()

    with pytest.raises(UsageError, match="a directory of yours"):
        library.remove(str(path))

    assert path.exists()


@pytest.mark.parametrize("name", ["demo", "owner/model"])
def test_removing_what_is_not_installed_is_an_error(
    library: Library, name: str
) -> None:
    with pytest.raises(ModelMissingError):
        library.remove(name)


def test_removing_a_link_leaves_what_it_leads_to(
    library: Library, paths: Paths, tmp_path: Path, make_package: MakePackage
) -> None:
    elsewhere = make_package(tmp_path / "large-disk")
    paths.packages.mkdir(parents=True)
    link = paths.packages / "mine"
    link.symlink_to(elsewhere)
    assert library.find("mine").path == link

    assert library.remove("mine", dry_run=True).freed_bytes == 0
    assert library.remove("mine").paths == ((link, 0),)

    assert list(paths.packages.iterdir()) == []
    assert (elsewhere / "splashpy.json").is_file()
