# SPDX-License-Identifier: Apache-2.0
"""Are the files of a model the right ones, all there, and only data?

``check_shards`` serves every model, ``check_files`` native packages with their list of
digests, ``refuse_code`` keeps Python of a repository from ever being run.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from splashpy.errors import IntegrityError, ModelKindError, RemoteCodeError
from splashpy.package import relative_path
from splashpy.package.fields import Fields, read_json
from splashpy.package.manifest import FILE_NAME, FileEntry, Manifest
from splashpy.package.progress import (
    Cancelled,
    CancelledError,
    Progress,
    never,
    silent,
)
from splashpy.package.safetensors_header import TensorEntry, read_header
from splashpy.protocol import LoadProgress

INDEX_NAME = "model.safetensors.index.json"

_CHUNK_BYTES = 4 << 20  # hashing: a few milliseconds between two progress reports
_SHOWN_NAMES = 8  # a message stays within a few lines
_SHARD = re.compile(r"(.*-)(\d{5})-of-(\d{5})\.safetensors")

_EXECUTABLE = frozenset(
    (
        *(".py", ".pyc", ".pyd", ".so", ".dylib", ".dll", ".exe", ".sh", ".command"),
        *(".pkl", ".pickle", ".joblib", ".pt", ".pth", ".ckpt", ".bin", ".npy", ".npz"),
    )
)
"""Suffixes of files that are code, or that loaders may unpickle into code."""

TOLERATED = frozenset((".DS_Store", ".gitattributes", ".gitignore"))
"""Written by Finder and git beside the real files; nothing reads them."""


def check_files(
    directory: Path,
    manifest: Manifest,
    *,
    full: bool,
    progress: Progress = silent,
    cancelled: Cancelled = never,
) -> None:
    """Compare a native package with its list of files.

    Args:
        directory: the package.
        manifest: its splashpy.json.
        full: also hash every file; otherwise sizes only.
        progress: phase ``verify``, in bytes.
        cancelled: polled between chunks.

    Raises:
        IntegrityError: a file is missing, differs, is not listed, or is a link that
            leaves the package.
        RemoteCodeError: a file is executable content.
        CancelledError: ``cancelled`` said yes.
    """
    _check_listing(directory, manifest)
    check_entries(
        directory, manifest.files, full=full, progress=progress, cancelled=cancelled
    )


def check_entries(
    directory: Path,
    entries: Sequence[FileEntry],
    *,
    full: bool,
    progress: Progress = silent,
    cancelled: Cancelled = never,
) -> None:
    """Compare listed files with what is on disk; files nobody lists are not looked at.

    Args and errors as :func:`check_files`; a link that leaves the package is refused.
    """
    roots = _allowed_roots(directory)
    done, total = 0, sum(entry.size for entry in entries)
    for entry in entries:
        path = directory / entry.path
        _check_inside(path, roots)
        _check_size(path, entry)
        if not full:
            continue
        digest = hashlib.sha256()
        for chunk in _chunks(path, cancelled):
            digest.update(chunk)
            done += len(chunk)
            progress(_verifying(entry.path, done, total))
        _check_digest(path, entry.sha256, digest.hexdigest())


def sha256_file(path: Path, cancelled: Cancelled = never) -> str:
    """SHA-256 of a file, as 64 hex digits."""
    digest = hashlib.sha256()
    for chunk in _chunks(path, cancelled):
        digest.update(chunk)
    return digest.hexdigest()


def check_safetensors(path: Path) -> dict[str, TensorEntry]:
    """Check header and size of one weights file; returns its tensors.

    Raises:
        IntegrityError: damaged or cut short; names the file and both sizes.
    """
    return read_header(path)


def check_shards(directory: Path) -> None:
    """Check that all weights of a model are there and whole.

    Raises:
        IntegrityError: files are missing ("incomplete download") or damaged.
        ModelKindError: the directory has no safetensors weights at all.
    """
    index = directory / INDEX_NAME
    expected = _indexed(index) if index.exists() else {}
    found = {path.name for path in directory.glob("model*.safetensors")}
    needed = set(expected) | found
    for name in list(needed):
        if match := _SHARD.fullmatch(name):
            needed |= _numbered(match[1], int(match[3]))
    if not needed:
        raise ModelKindError(
            f"{directory}: no model*.safetensors", why=_found(directory)
        )
    missing = sorted(name for name in needed if not (directory / name).is_file())
    if missing:
        raise IntegrityError(
            f"{directory}: incomplete download", why=f"missing: {_listed(missing)}"
        )
    for name in sorted(needed):
        tensors = check_safetensors(directory / name)
        if lost := sorted(expected.get(name, set()) - set(tensors)):
            raise IntegrityError(
                f"{directory / name}: {len(lost)} tensors of the index are not in it",
                why=f"first: {lost[0]}",
            )


def refuse_code(config: dict[str, Any], where: str) -> None:
    """Refuse a configuration that names Python to run.

    Args:
        config: config.json or tokenizer_config.json.
        where: the file, for the message.

    Raises:
        RemoteCodeError: it has ``auto_map`` or ``model_file``, at any depth.
    """
    waiting: list[Any] = [config]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            waiting += found
        if not isinstance(found, dict):
            continue
        for key in ("auto_map", "model_file"):
            if value := found.get(key):
                raise RemoteCodeError(
                    f"{where}: {key} asks to run Python from the repository",
                    why=f"{key} = {value!r}; splashpy never runs code of a model",
                    fix=["choose a model that mlx-lm supports by itself"],
                )
        waiting += found.values()


def _check_listing(directory: Path, manifest: Manifest) -> None:
    roots = _allowed_roots(directory)
    listed = {entry.path for entry in manifest.files}
    for path in sorted(_walk(directory)):
        name = path.relative_to(directory).as_posix()
        if path.suffix.lower() in _EXECUTABLE:
            raise RemoteCodeError(f"{path}: executable content in a package")
        _check_inside(path, roots)
        if name not in listed and not _may_be_unlisted(name):
            raise IntegrityError(f"{path}: not listed in {FILE_NAME}")


def _walk(directory: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(directory):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        yield from (Path(folder) / name for name in (*files, *links))


def _allowed_roots(directory: Path) -> tuple[Path, ...]:
    """The package, and for a snapshot in the Hugging Face cache its blobs."""
    root = directory.resolve()
    if root.parent.name == "snapshots":
        return root, root.parent.parent / "blobs"
    return (root,)


def _check_inside(path: Path, roots: tuple[Path, ...]) -> None:
    real = Path(os.path.realpath(path))  # resolve() fails on a loop of links
    if not any(real.is_relative_to(root) for root in roots):
        raise IntegrityError(f"{path}: a link that leaves the package", why=str(real))


def _may_be_unlisted(name: str) -> bool:
    path = PurePosixPath(name)
    if path.name in TOLERATED or name == FILE_NAME or path.parts[0] == "licenses":
        return True
    return len(path.parts) == 1 and name.startswith(("README", "LICENSE", "NOTICE"))


def _check_size(path: Path, entry: FileEntry) -> None:
    try:
        found = path.stat()
    except OSError:
        raise IntegrityError(f"{path}: missing", why="incomplete download") from None
    if not stat.S_ISREG(found.st_mode):
        raise IntegrityError(f"{path}: not a regular file")
    size = found.st_size
    if size != entry.size:
        raise IntegrityError(
            f"{path}: wrong size", why=f"expected {entry.size} bytes, found {size}"
        )


def _check_digest(path: Path, expected: str, found: str) -> None:
    if found != expected:
        raise IntegrityError(
            f"{path}: its SHA-256 differs from the recorded one",
            why=f"expected {expected}, found {found}",
        )


def _chunks(path: Path, cancelled: Cancelled) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            if cancelled():
                raise CancelledError
            yield chunk


def _verifying(item: str, done: int, total: int) -> LoadProgress:
    return LoadProgress(phase="verify", done=done, total=total, unit="bytes", item=item)


def _indexed(index: Path) -> dict[str, set[str]]:
    """Shard name to the tensors the index places there."""
    placed: dict[str, set[str]] = {}
    fields = Fields(read_json(index), str(index)).object("weight_map")
    for tensor in fields.data:
        shard = fields.text(tensor)
        if relative_path.problem(shard) or "/" in shard:
            raise IntegrityError(f"{index}: {shard!r} is not a file of this directory")
        placed.setdefault(shard, set()).add(tensor)
    return placed


def _numbered(stem: str, count: int) -> set[str]:
    return {f"{stem}{n:05}-of-{count:05}.safetensors" for n in range(1, count + 1)}


def _found(directory: Path) -> str:
    names = sorted(path.name for path in directory.iterdir())
    return f"found: {_listed(names)}" if names else "the directory is empty"


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
