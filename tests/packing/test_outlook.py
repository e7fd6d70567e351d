# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny
from package.hub_server import HubServer, Repository
from splash_kit import write_tiny_splash

from splashpy.errors import HubError, ModelUnknownError
from splashpy.packing.memory_verdict import Weights
from splashpy.packing.outlook import SPLASH_BITS, Outlook, look
from splashpy.paths import Paths

CONFIG = {"model_type": "qwen3", "quantization": {"bits": 8, "group_size": 32}}


def files_below(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.under(tmp_path / "home")


def seen(text: str, paths: Paths) -> Outlook:
    outlook = look(text, None, paths, offline=False)
    assert outlook is not None
    return outlook


def test_a_repository_is_told_without_its_weights(
    server: HubServer, paths: Paths
) -> None:
    files = {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors": bytes(900),
        "consolidated.safetensors": bytes(900),
    }
    server.repositories["owner/it"] = Repository(files, base_model="maker/It")

    outlook = seen("owner/it", paths)

    assert outlook.target == Weights(900, 9)
    assert (outlook.draft, outlook.base_model) == (None, "maker/It")
    assert outlook.config == CONFIG
    assert outlook.download_bytes >= 1800
    asked = [path for _, path, _ in server.requests if "resolve" in path]
    assert {path.rpartition("/")[2] for path in asked} == {"config.json"}


def test_a_splash_package_tells_target_and_drafter_apart(
    server: HubServer, paths: Paths, tmp_path: Path
) -> None:
    splash = write_tiny_splash(tmp_path / "splash", "splash-packed-q4")
    server.repositories["owner/splash"] = Repository(files_below(splash.path))

    far, near = seen("owner/splash", paths), seen(str(splash.path), paths)

    sizes = [
        sum(file.stat().st_size for file in (splash.path / folder).iterdir())
        for folder in ("target", "draft")
    ]
    assert far.parts == near.parts
    assert far.parts == tuple(Weights(size, SPLASH_BITS) for size in sizes)
    assert far.config["model_type"] == near.config["model_type"] == "qwen3_5"
    assert far.download_bytes > sum(sizes)
    assert near.download_bytes == 0


def test_a_gguf_file_is_told_by_its_name(
    server: HubServer, paths: Paths, tmp_path: Path
) -> None:
    files = {"m.Q8_0.gguf": bytes(70), "m.Q4_1.gguf": bytes(40), "README.md": b"card"}
    server.repositories["owner/files"] = Repository(files)
    (tmp_path / "m.Q4_1.gguf").write_bytes(bytes(40))

    far = seen("owner/files:m.Q4_1.gguf", paths)

    assert far.target == seen(str(tmp_path / "m.Q4_1.gguf"), paths).target
    assert far.target == Weights(40, 5)
    assert far.download_bytes == 44
    del files["m.Q4_1.gguf"]
    assert seen("owner/files", paths).target == Weights(70, 8.5)
    with pytest.raises(ModelUnknownError, match=r"no file m\.Q2\.gguf"):
        look("owner/files:m.Q2.gguf", None, paths, offline=False)


def test_what_cannot_be_looked_at_is_left_to_its_reader(
    paths: Paths, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")

    for text in (str(broken), "./nowhere", "nosuchmodel", "owner/repo"):
        assert look(text, None, paths, offline=True) is None


def test_a_hub_that_refuses_is_told_at_once(server: HubServer, paths: Paths) -> None:
    server.repositories["owner/it"] = Repository({}, status=503)

    with pytest.raises(HubError):
        look("owner/it", None, paths, offline=False)


def test_a_directory_on_this_computer_needs_nothing(
    paths: Paths, tmp_path: Path
) -> None:
    model = tiny.write_model(tmp_path / "model")
    (model / "README.md").write_text("---\nbase_model:\n- maker/It\n---\n")

    outlook = seen(str(model), paths)

    assert outlook.target.num_bytes == (model / "model.safetensors").stat().st_size
    assert (outlook.base_model, outlook.download_bytes) == ("maker/It", 0)
