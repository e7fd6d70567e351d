# SPDX-License-Identifier: Apache-2.0
"""Target, drafter and vision tower become the files of a Splash package."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from splashpy.errors import PackageError
from splashpy.package.integrity import sha256_file
from splashpy.package.manifest import FileEntry
from splashpy.package.progress import (
    Cancelled,
    CancelledError,
    Progress,
    never,
    silent,
)
from splashpy.package.splash import decay
from splashpy.package.splash.formats import SplashFormat
from splashpy.package.splash.image import write_image
from splashpy.package.splash.layout import FileLayout, draft_files, target_files
from splashpy.package.splash.manifest import FILE_NAME as MANIFEST_NAME
from splashpy.package.splash.manifest import SplashManifest, weight_files
from splashpy.package.splash.vision_layout import vision_file
from splashpy.package.weights.tensor import Tensor
from splashpy.protocol import LoadProgress

Give = Callable[[str], Tensor]
"""Gives a tensor by name."""


@dataclass(frozen=True, slots=True)
class SplashParts:
    """What a package is made from.

    Attributes:
        target: tensors of mlx-lm's names; ``linear_attn.decay`` where the stored
            numbers are known, else it raises KeyError for them and ``A_log`` is asked.
        draft: tensors of a DFlash 2 drafter, its matrices packed.
        vision: tensors of the vision tower without their common prefix.
        tokenizer: path in the package to content: config.json of the model included.
        model: what people call it.
        upstream: where the parts came from.
        original: manifest.json of the package the parts were taken from; it is written
            again when all files come out as it lists them.
    """

    target: Give
    draft: Give
    vision: Give
    tokenizer: Mapping[str, bytes]
    model: str
    upstream: Mapping[str, Any] = field(default_factory=dict)
    original: bytes = b""


def write_splash(
    row: SplashFormat,
    parts: SplashParts,
    directory: Path,
    *,
    progress: Progress = silent,
    cancelled: Cancelled = never,
) -> SplashManifest:
    """Write a whole package into an existing directory; manifest.json comes last.

    Files of weights that are there are complete, and kept.

    Args:
        row: the format.
        parts: what it is made from.
        directory: of the package.
        progress: as for ``write_weight_files``.
        cancelled: likewise.

    Raises:
        ModelKindError: a part is missing or does not fit the format.
        CancelledError: ``cancelled`` said yes.
    """
    entries = write_weight_files(
        row, parts, directory, progress=progress, cancelled=cancelled
    )
    for name, content in parts.tokenizer.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        entries.append(FileEntry(path=name, size=len(content), sha256=digest))
    manifest = SplashManifest(
        model=parts.model,
        row=row,
        files=tuple(sorted(entries, key=lambda entry: entry.path)),
        upstream=parts.upstream,
    )
    before = _manifest_before(parts.original, row)
    if before and before.files == manifest.files:
        manifest = dataclasses.replace(before, content=parts.original)
    (directory / MANIFEST_NAME).write_bytes(manifest.to_bytes())
    return manifest


def _manifest_before(content: bytes, row: SplashFormat) -> SplashManifest | None:
    """The manifest the parts came with; None without one of this format."""
    try:
        data = json.loads(content) if content else None
        return SplashManifest.from_json(data, table={row.name: row}) if data else None
    except (ValueError, RecursionError, PackageError):
        return None


def write_weight_files(
    row: SplashFormat,
    parts: SplashParts,
    directory: Path,
    *,
    progress: Progress,
    cancelled: Cancelled,
) -> list[FileEntry]:
    """Write the files of weights that are not there yet.

    Args:
        row: the format.
        parts: where tensors come from.
        directory: of the package; each file appears in it when it is complete.
        progress: phase ``prepare``, in bytes.
        cancelled: polled before each tensor.

    Returns:
        The files with their digests.

    Raises:
        ModelKindError: a tensor is missing or does not fit the format.
        CancelledError: ``cancelled`` said yes.
    """
    target, draft = target_files(row), draft_files(row)
    sources = [
        *((layout, _with_decay(parts.target)) for layout in target),
        *((layout, parts.draft) for layout in draft),
        (vision_file(row), parts.vision),
    ]
    total = sum(layout.num_bytes for layout in weight_files(row))
    done, entries = 0, []
    for layout, give in sources:
        give = _stoppable(give, cancelled)
        entries.append(_write(layout, give, directory, cancelled))
        done += layout.num_bytes
        progress(
            LoadProgress(
                phase="prepare", done=done, total=total, unit="bytes", item=layout.path
            )
        )
    return entries


def _write(
    layout: FileLayout, give: Give, directory: Path, cancelled: Cancelled
) -> FileEntry:
    final = directory / layout.path
    if final.is_file():
        digest = sha256_file(final, cancelled)
        return FileEntry(path=layout.path, size=layout.num_bytes, sha256=digest)
    final.parent.mkdir(parents=True, exist_ok=True)
    part = final.with_name(f"{final.name}.part")
    try:
        with part.open("wb") as file:
            hashed = _Hashed(file)
            write_image(hashed, layout, give)
            file.flush()
            os.fsync(file.fileno())
        part.replace(final)
    finally:
        part.unlink(missing_ok=True)
    digest = hashed.digest.hexdigest()
    return FileEntry(path=layout.path, size=layout.num_bytes, sha256=digest)


class _Hashed:
    """A file that keeps the digest of what is written to it."""

    def __init__(self, file: BinaryIO):
        self.digest = hashlib.sha256()
        self._file = file

    def write(self, content: bytes | memoryview) -> int:
        self.digest.update(content)
        return self._file.write(content)


def _with_decay(give: Give) -> Give:
    """Make a decay from ``A_log`` where none is stored."""

    def tensor(name: str) -> Tensor:
        module, _, last = name.rpartition(".")
        if last != "decay":
            return give(name)
        try:
            return give(name)
        except KeyError:
            return decay.from_a_log(give(f"{module}.A_log"))

    return tensor


def _stoppable(give: Give, cancelled: Cancelled) -> Give:
    def tensor(name: str) -> Tensor:
        if cancelled():
            raise CancelledError
        return give(name)

    return tensor
