# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants
from package.hub_server import COMMIT, HubServer, Repository, point_at
from splash_kit import write_tiny_splash

from splashpy.errors import (
    AuthorisationError,
    DownloadError,
    HubError,
    ModelKindError,
    ModelUnknownError,
    OfflineError,
    SplashError,
)
from splashpy.package import hub
from splashpy.package.hub_cache import damaged_blobs
from splashpy.package.model_directory import ModelDirectory
from splashpy.package.progress import CancelledError
from splashpy.package.repository import needed_files
from splashpy.package.splash.package import SplashPackage
from splashpy.protocol import LoadProgress

EXTRA = {
    ".gitattributes": b"x",
    "README.md": b"card",
    "onnx/model.onnx": b"x" * 99,
    "pytorch_model.bin": b"x" * 99,
}


@pytest.fixture
def model(server: HubServer, make_model: Callable[..., Path]) -> Repository:
    files = {path.name: path.read_bytes() for path in make_model().iterdir()}
    server.repositories["owner/model"] = Repository({**files, **EXTRA})
    return server.repositories["owner/model"]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "hub"


def test_only_what_a_loader_reads_is_downloaded(model: Repository, cache: Path) -> None:
    path = hub.snapshot("owner/model", cache=cache)

    assert path.name == COMMIT
    assert sorted(file.name for file in path.iterdir()) == [
        *("README.md", "config.json", "model.safetensors", "tokenizer.json"),
    ]
    assert ModelDirectory.open(path).kind == "mlx"
    assert damaged_blobs(path) == []


def test_progress_ends_at_the_total(model: Repository, cache: Path) -> None:
    steps: list[LoadProgress] = []

    hub.snapshot("owner/model", cache=cache, progress=steps.append)

    total = hub.repository_facts("owner/model").size_bytes
    downloads = [step for step in steps if step.phase == "download"]
    assert [step.done for step in downloads] == sorted(s.done for s in downloads)
    assert (downloads[-1].done, downloads[-1].total) == (total, total)


def test_a_downloaded_model_is_found_offline_without_a_socket(
    model: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache lacks .gitattributes and the weights of other formats."""
    path = hub.snapshot("owner/model", cache=cache)
    monkeypatch.setattr(socket, "socket", None)

    assert hub.snapshot("owner/model", cache=cache, offline=True) == path
    assert ModelDirectory.open(path).model_type == "llama"


def test_offline_without_a_download_says_so_without_a_socket(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "socket", None)

    with pytest.raises(OfflineError) as failure:
        hub.snapshot("owner/model", "main", cache=cache, offline=True)

    assert "splashpy pull owner/model@main" in failure.value.fix


def test_facts_are_told_without_weights(model: Repository, server: HubServer) -> None:
    facts = hub.repository_facts("owner/model")

    assert facts.commit == COMMIT
    assert facts.license == "apache-2.0"
    assert facts.size_bytes == sum(
        len(content)
        for path, content in model.files.items()
        if path not in EXTRA or path == "README.md"
    )
    assert not any("resolve" in path for _, path, _ in server.requests)


def test_the_configuration_comes_alone(
    model: Repository, server: HubServer, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))

    assert hub.configuration("owner/model")["model_type"] == "llama"

    del model.files["config.json"]
    assert hub.configuration("owner/model", "other") == {}
    resolved = {path for _, path, _ in server.requests if "resolve" in path}
    assert all(path.endswith("config.json") for path in resolved)
    assert not cache.exists()  # nothing there looks like half a model


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (404, "RepoNotFound", ModelUnknownError),
        (404, "RevisionNotFound", ModelUnknownError),
        (401, "GatedRepo", AuthorisationError),
        (401, "", AuthorisationError),
        (403, "GatedRepo", AuthorisationError),
        (403, "", AuthorisationError),
        (500, "", HubError),
        (429, "", HubError),
    ],
)
def test_a_refusal_has_its_own_error(
    model: Repository,
    cache: Path,
    status: int,
    code: str,
    expected: type[SplashError],
) -> None:
    model.status, model.error_code = status, code

    with pytest.raises(expected, match="owner/model") as failure:
        hub.snapshot("owner/model", cache=cache)

    assert type(failure.value) is expected


def test_a_hub_that_does_not_answer_is_named(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    point_at(monkeypatch, f"http://127.0.0.1:{port}")

    with pytest.raises(HubError, match="no answer from the Hub") as failure:
        hub.snapshot("owner/model", cache=cache)

    assert failure.value.fix == ("splashpy pull owner/model",)


def test_the_hubs_own_offline_switch_is_honoured(
    model: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    with pytest.raises(OfflineError, match="HF_HUB_OFFLINE"):
        hub.snapshot("owner/model", cache=cache)


def test_a_broken_transfer_keeps_the_files_that_arrived_whole(
    model: Repository,
    server: HubServer,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)  # the client's pauses to retry
    model.files["model.safetensors"] += b"x" * 10_000  # never opened here
    model.cut_at = 4000
    with pytest.raises(DownloadError, match="files that arrived whole are kept"):
        hub.snapshot("owner/model", cache=cache)

    model.cut_at = None
    server.requests.clear()
    path = hub.snapshot("owner/model", cache=cache)

    assert damaged_blobs(path) == []
    fetched = [path for command, path, _ in server.requests if command == "GET"]
    assert [path for path in fetched if "resolve" in path] == [
        f"/owner/model/resolve/{COMMIT}/model.safetensors"
    ]
    assert capfd.readouterr().err == ""


def test_a_download_stops_when_asked(model: Repository, cache: Path) -> None:
    with pytest.raises(CancelledError):
        hub.snapshot("owner/model", cache=cache, cancelled=lambda: True)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"manifest.json": b"{}", "target/layer.bin": b"x"}, "no model in"),
        ({"config.json": b"{}", "pytorch_model.bin": b"x"}, "no model in safetensors"),
        ({"model.gguf": b"x"}, "owner/other holds GGUF files"),
    ],
)
def test_what_cannot_be_read_is_refused_before_the_download(
    server: HubServer, cache: Path, files: dict[str, bytes], found: str
) -> None:
    server.repositories["owner/other"] = Repository(files)

    with pytest.raises(ModelKindError, match=found):
        hub.snapshot("owner/other", cache=cache)

    assert not any("resolve" in path for _, path, _ in server.requests)


def test_a_splash_package_comes_without_its_vision_tower(
    server: HubServer, cache: Path, tmp_path: Path
) -> None:
    splash = write_tiny_splash(tmp_path / "package", "splash-packed-q4")
    files = {
        path.relative_to(splash.path).as_posix(): path.read_bytes()
        for path in splash.path.rglob("*")
        if path.is_file()
    }
    server.repositories["owner/splash"] = Repository({**files, **EXTRA})

    path = hub.snapshot("owner/splash", cache=cache)

    package = SplashPackage.open(path, splash.table)
    package.check_digests()
    assert not package.has_vision
    names = {p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()}
    assert names == {*files, "README.md"} - {"vision/model.bin"}


def test_a_native_package_comes_with_its_folders(
    server: HubServer,
    cache: Path,
    tmp_path: Path,
    make_package: Callable[[Path], Path],
) -> None:
    package = make_package(tmp_path / "package")
    files = {
        path.relative_to(package).as_posix(): path.read_bytes()
        for path in package.rglob("*")
        if path.is_file()
    }
    server.repositories["owner/package"] = Repository({**files, **EXTRA})

    path = hub.snapshot("owner/package", cache=cache)

    assert ModelDirectory.open(path).kind == "native"
    assert not (path / "onnx").exists()


@pytest.mark.parametrize(
    "name", ["../../../evil.json", "/tmp/evil.json", "target/../../../evil.json"]
)
def test_a_file_that_would_leave_the_cache_is_not_asked_for(
    server: HubServer,
    cache: Path,
    tmp_path: Path,
    make_package: Callable[[Path], Path],
    name: str,
) -> None:
    package = make_package(tmp_path / "package")
    files = {
        path.relative_to(package).as_posix(): path.read_bytes()
        for path in package.rglob("*")
        if path.is_file()
    }
    server.repositories["owner/package"] = Repository(
        {**files, name: b"{}", f"{name}.gguf": b"x"}
    )

    path = hub.snapshot("owner/package", cache=cache)

    assert ModelDirectory.open(path).kind == "native"
    assert hub.repository_facts("owner/package").gguf == ()
    assert not list(tmp_path.rglob("evil*"))


def test_a_package_too_large_for_the_disk_is_refused_before_the_download(
    model: Repository, server: HubServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splashpy.package.disk_space.MARGIN_BYTES", 1 << 60)

    with pytest.raises(SplashError) as failure:
        hub.snapshot("owner/model", cache=cache)

    assert failure.value.code == "E-DISK"
    assert not any("resolve" in path for _, path, _ in server.requests)


def test_usage_statistics_are_off(model: Repository, cache: Path) -> None:
    hub.snapshot("owner/model", cache=cache)

    assert constants.HF_HUB_DISABLE_TELEMETRY


def test_needed_files_are_chosen_by_name() -> None:
    names = [
        *("config.json", "a.py", "model.safetensors", "sub/model.safetensors"),
        *("merges.txt", "tokenizer.model", "LICENSE.md", "image.png"),
    ]

    assert needed_files(names) == [
        *("LICENSE.md", "config.json", "merges.txt", "model.safetensors"),
        "tokenizer.model",
    ]
    assert json.dumps(names)  # the input is left as it was
