# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest
from huggingface_hub import constants
from package.hub_server import COMMIT, HubServer, Repository
from pyarrow import parquet

from splashpy.errors import (
    IntegrityError,
    ModelUnknownError,
    OfflineError,
    SplashError,
    UsageError,
)
from splashpy.package import datasets
from splashpy.package.datasets import dataset_file, rows


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    with HubServer() as server:
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield server


def test_a_file_is_fetched_once_and_its_commit_is_known(server: HubServer) -> None:
    server.repositories["owner/set"] = Repository({"test.jsonl": b'{"q": 1}\n'})

    path, commit = dataset_file("owner/set", "test.jsonl", offline=False)
    asked = len(server.requests)
    again, _ = dataset_file("owner/set", "test.jsonl", offline=True)

    assert rows(path) == [{"q": 1}]
    assert commit == COMMIT
    assert again == path
    assert len(server.requests) == asked


def test_offline_without_the_file_says_what_needs_none(server: HubServer) -> None:
    with pytest.raises(OfflineError, match=r"test.jsonl of owner/set") as raised:
        dataset_file("owner/set", "test.jsonl", offline=True)
    assert "--suite quick" in raised.value.fix[0]
    assert server.requests == []


def test_a_dataset_that_is_not_there_is_named(server: HubServer) -> None:
    with pytest.raises(ModelUnknownError, match="owner/none"):
        dataset_file("owner/none", "test.jsonl", offline=False)


def test_only_a_newline_ends_a_row(tmp_path: Path) -> None:
    text = "one\u2028two\x85three\x1cfour"
    content = json.dumps({"q": text}, ensure_ascii=False)
    path = tmp_path / "a.jsonl"
    path.write_text(f"\ufeff{content}\r\n{content}\n", encoding="utf-8")

    assert rows(path) == [{"q": text}] * 2


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("a.jsonl", b"{", IntegrityError),
        pytest.param("a.jsonl", b"[" * 100_000, IntegrityError, id="deep"),
        ("a.jsonl", b"[1]\n", IntegrityError),
        ("a.jsonl", b"\xff", IntegrityError),
    ],
)
def test_a_file_that_is_no_rows_is_refused(
    tmp_path: Path, name: str, content: bytes, error: type[SplashError]
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=name):
        rows(tmp_path / name)


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(datasets, "import_module", missing)
    with pytest.raises(UsageError) as raised:
        rows(tmp_path / "a.parquet")
    assert raised.value.fix[0] == "pip install pyarrow"


def test_parquet_is_read(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"q": ["a", "b"]}), tmp_path / "a.parquet")
    assert rows(tmp_path / "a.parquet") == [{"q": "a"}, {"q": "b"}]

    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    with pytest.raises(IntegrityError, match=r"cut.parquet"):
        rows(tmp_path / "cut.parquet")
