# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from package.hub_server import COMMIT, HubServer, Repository
from packing.conftest import TinyRecipe

from splashpy.errors import (
    AuthorisationError,
    ModelUnknownError,
    OfflineError,
    SplashError,
    UsageError,
)
from splashpy.package.progress import never, silent
from splashpy.packing.inputs import Input, resolve
from splashpy.paths import Paths


@pytest.fixture
def repository(server: HubServer, tiny: TinyRecipe) -> Repository:
    """Two GGUF files and a card."""
    content = tiny.gguf.read_bytes()
    files = {"q4.gguf": content, "more/q8.gguf": content, "README.md": b"# card\n"}
    server.repositories["owner/files"] = Repository(files)
    return server.repositories["owner/files"]


def find(text: str, tmp_path: Path, *, offline: bool = False) -> Input:
    paths = Paths.under(tmp_path / "home")
    return resolve(text, None, paths, offline=offline, progress=silent, cancelled=never)


def test_a_chosen_file_of_a_repository_comes_alone_with_its_card(
    repository: Repository, tmp_path: Path
) -> None:
    found = find("owner/files:more/q8.gguf", tmp_path)

    assert (found.kind, found.repo, found.revision) == ("gguf", "owner/files", COMMIT)
    assert found.path.read_bytes() == repository.files["more/q8.gguf"]
    folder = found.path.parents[1]
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "more"]
    assert find("owner/files:more/q8.gguf", tmp_path, offline=True) == found


def test_the_only_file_of_a_repository_needs_no_choice(
    repository: Repository, tmp_path: Path
) -> None:
    del repository.files["more/q8.gguf"]

    found = find("owner/files", tmp_path)

    assert (found.kind, found.path.name) == ("gguf", "q4.gguf")


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("owner/files", UsageError, "2 GGUF files"),
        ("owner/files:q5.gguf", ModelUnknownError, "no file q5.gguf"),
        ("owner/files:../q4.gguf", UsageError, "leaves the package"),
        ("owner/files:/q4.gguf", UsageError, "is absolute"),
        ("demo:q4.gguf", UsageError, "only OWNER/REPO"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_before_a_download(
    repository: Repository,
    server: HubServer,
    tmp_path: Path,
    text: str,
    error: type[SplashError],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        find(text, tmp_path)

    assert not any("resolve" in path for _, path, _ in server.requests)


def test_a_file_that_was_not_downloaded_is_missing_offline(
    repository: Repository, tmp_path: Path
) -> None:
    find("owner/files:q4.gguf", tmp_path)

    with pytest.raises(OfflineError, match=r"owner/files:more/q8\.gguf"):
        find("owner/files:more/q8.gguf", tmp_path, offline=True)


def test_a_gated_repository_says_where_to_ask(
    repository: Repository, tmp_path: Path
) -> None:
    repository.status, repository.error_code = 401, "GatedRepo"

    with pytest.raises(AuthorisationError) as failure:
        find("owner/files:q4.gguf", tmp_path)

    assert "https://huggingface.co/owner/files" in failure.value.fix
