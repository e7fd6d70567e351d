# SPDX-License-Identifier: Apache-2.0
"""The Hugging Face cache as it lies on disk; opens no socket.

Layout, as documented by huggingface_hub::

    models--OWNER--REPO/
        refs/main                 the commit a branch or tag pointed to
        snapshots/<commit>/...    links to
        blobs/<digest>            the files; for large ones the name is the SHA-256
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from splashpy.package.integrity import sha256_file
from splashpy.package.progress import Cancelled, Progress, never, silent
from splashpy.protocol import LoadProgress

DEFAULT_BRANCH = "main"

_PREFIX = "models--"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHORT_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class CachedSnapshot:
    """One downloaded revision, perhaps an incomplete one.

    Attributes:
        repo: ``OWNER/REPO``.
        commit: 40 hex digits.
        path: directory with the files.
        is_default: the repository's default branch pointed here, or there is no other
            revision.
    """

    repo: str
    commit: str
    path: Path
    is_default: bool

    @property
    def name(self) -> str:
        """Shortest name that finds this revision."""
        return self.repo if self.is_default else f"{self.repo}@{self.commit[:12]}"


def all_snapshots(cache: Path) -> list[CachedSnapshot]:
    """Every revision of every model in the cache, by name."""
    if not cache.is_dir():
        return []
    found = (
        snapshot
        for folder in cache.iterdir()
        if folder.name.startswith(_PREFIX) and folder.name.count("--") == 2
        for snapshot in _snapshots(folder)
    )
    return sorted(found, key=lambda snapshot: snapshot.name)


def find_snapshot(
    cache: Path, repo: str, revision: str | None = None
) -> CachedSnapshot | None:
    """The downloaded revision a name means; None when it is not there.

    Args:
        cache: the cache directory.
        repo: ``OWNER/REPO``.
        revision: branch, tag, commit or the first seven and more digits of one; None
            is the default branch, or the only revision there is.
    """
    folder = cache / (_PREFIX + repo.replace("/", "--"))
    snapshots = list(_snapshots(folder))
    if revision is None:
        return next((item for item in snapshots if item.is_default), None)
    if _SHORT_COMMIT.fullmatch(revision):
        matching = [item for item in snapshots if item.commit.startswith(revision)]
        return matching[0] if len(matching) == 1 else None
    commit = _ref(folder, revision)
    return next((item for item in snapshots if item.commit == commit), None)


def damaged_blobs(
    snapshot: Path, progress: Progress = silent, cancelled: Cancelled = never
) -> list[Path]:
    """Files of a snapshot whose content is not what the cache recorded.

    Large files are stored under their SHA-256; small ones under a git digest and are
    not hashed here. Reports phase ``verify`` in bytes.
    """
    files = [path for path in sorted(snapshot.rglob("*")) if path.is_file()]
    hashed = [path for path in files if _SHA256.fullmatch(path.resolve().name)]
    done, total = 0, sum(path.stat().st_size for path in hashed)
    damaged = []
    for path in hashed:
        if sha256_file(path, cancelled) != path.resolve().name:
            damaged.append(path)
        done += path.stat().st_size
        progress(
            LoadProgress(
                phase="verify", done=done, total=total, unit="bytes", item=path.name
            )
        )
    return damaged


def _snapshots(folder: Path) -> Iterator[CachedSnapshot]:
    directory = folder / "snapshots"
    if not directory.is_dir():
        return
    repo = folder.name.removeprefix(_PREFIX).replace("--", "/")
    commits = sorted(
        path.name
        for path in directory.iterdir()
        if path.is_dir() and _COMMIT.fullmatch(path.name)
    )
    default = _ref(folder, DEFAULT_BRANCH)
    if default not in commits and len(commits) == 1:
        default = commits[0]
    for commit in commits:
        yield CachedSnapshot(repo, commit, directory / commit, commit == default)


def _ref(folder: Path, revision: str) -> str:
    """The commit a branch or tag pointed to when it was last downloaded."""
    try:
        commit = (folder / "refs" / revision).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
    return commit if _COMMIT.fullmatch(commit) else ""
