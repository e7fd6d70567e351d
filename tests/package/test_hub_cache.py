# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from splashpy.package.hub_cache import all_snapshots, damaged_blobs, find_snapshot

OLD, NEW = "a" * 40, "b" * 40


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with one repository of two revisions and one of a single revision."""
    for repo, commits in (("owner--two", (OLD, NEW)), ("owner--one", (OLD,))):
        folder = tmp_path / f"models--{repo}"
        (folder / "refs" / "pr").mkdir(parents=True)
        for commit in commits:
            (folder / "snapshots" / commit).mkdir(parents=True)
    refs = tmp_path / "models--owner--two" / "refs"
    (refs / "main").write_text(NEW, encoding="utf-8")
    (refs / "pr" / "1").write_text(OLD, encoding="utf-8")
    (tmp_path / "datasets--owner--data" / "snapshots" / OLD).mkdir(parents=True)
    (tmp_path / "version.txt").write_text("1", encoding="utf-8")
    return tmp_path


def test_the_default_branch_has_the_plain_name(cache: Path) -> None:
    assert [item.name for item in all_snapshots(cache)] == [
        "owner/one",
        "owner/two",
        f"owner/two@{OLD[:12]}",
    ]


def test_a_cache_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert all_snapshots(tmp_path / "none") == []
    assert find_snapshot(tmp_path / "none", "owner/two") is None


@pytest.mark.parametrize(
    ("revision", "commit"),
    [(None, NEW), ("main", NEW), ("pr/1", OLD), (OLD, OLD), (OLD[:7], OLD)],
)
def test_a_revision_is_found_by_branch_and_by_commit(
    cache: Path, revision: str | None, commit: str
) -> None:
    found = find_snapshot(cache, "owner/two", revision)

    assert found is not None
    assert found.commit == commit


@pytest.mark.parametrize("revision", ["c" * 40, "abcdef0", "no-such-branch", "aaaaaa"])
def test_a_revision_that_is_not_there_is_not_found(cache: Path, revision: str) -> None:
    assert find_snapshot(cache, "owner/two", revision) is None


def test_a_broken_ref_is_no_revision(cache: Path) -> None:
    ref = cache / "models--owner--two" / "refs" / "main"
    ref.write_bytes(b"\xff")

    assert find_snapshot(cache, "owner/two") is None


def test_a_large_file_that_differs_from_its_name_is_damaged(
    cache: Path, make_blob: Callable[[Path, str, bytes], Path]
) -> None:
    repo = cache / "models--owner--one"
    good = make_blob(repo, "good.safetensors", b"good")
    bad = make_blob(repo, "bad.safetensors", b"bad")
    bad.resolve().write_bytes(b"baD")

    assert damaged_blobs(good.parent) == [bad]


@pytest.fixture
def make_blob() -> Callable[[Path, str, bytes], Path]:
    def make(repo: Path, name: str, content: bytes) -> Path:
        digest = hashlib.sha256(content).hexdigest()
        (repo / "blobs").mkdir(exist_ok=True)
        (repo / "blobs" / digest).write_bytes(content)
        link = repo / "snapshots" / OLD / name
        link.symlink_to(f"../../blobs/{digest}")
        return link

    return make
