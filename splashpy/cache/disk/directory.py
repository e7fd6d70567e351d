# SPDX-License-Identifier: Apache-2.0
"""One namespace's directory: who may write, and where each record lies.

::

    <first 16 hex digits of the namespace>/
      NAMESPACE.json      the whole identity
      LOCK                held by the one engine that uses the directory
      index.sqlite        which records there are; can be rebuilt
      b/ t/ d/            blocks, states, drafter contexts, below two hex digits each

It holds prompts, so nobody else may look in: directories are 0700, files 0600.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from typing import Any, Literal

from splashpy.cache.disk.record import FILE_MODE, SUFFIX

RecordKind = Literal["block", "state", "draft"]

FOLDERS: dict[RecordKind, str] = {"block": "b", "state": "t", "draft": "d"}
DIRECTORY_MODE = 0o700

_NAMESPACE = "NAMESPACE.json"
_LOOK_SECONDS = 0.02  # somebody who only looks whether it is held holds it shortly
_NAME_DIGITS = 16


@dataclass(slots=True)
class NamespaceDirectory:
    """A directory that is held.

    Attributes:
        path: of the directory.
        writable: records can be written.
        why_not: why they cannot.
        lock: file descriptor of the lock; None where there could be none.
    """

    path: Path
    writable: bool = True
    why_not: str = ""
    lock: int | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    def hold(
        cls, root: Path, digest: bytes, identity: dict[str, Any]
    ) -> NamespaceDirectory | None:
        """Hold the directory of a namespace; None while another engine holds it.

        Args:
            root: directory of all namespaces.
            digest: of the namespace.
            identity: written down in full beside it.
        """
        found = cls(root / digest.hex()[:_NAME_DIGITS])
        try:
            found._create(root)
            found.lock = os.open(found.path / "LOCK", os.O_RDWR | os.O_CREAT, FILE_MODE)
        except OSError as error:
            return found._read_only(error)
        if not any(_locked(found.lock) or sleep(_LOOK_SECONDS) for _ in range(3)):
            os.close(found.lock)
            return None
        try:
            found._identify(identity)
        except OSError as error:
            return found._read_only(error)
        return found

    def file(self, kind: RecordKind, name: bytes) -> Path:
        """Where a record lies."""
        text = name.hex()
        return self.path / FOLDERS[kind] / text[:2] / f"{text}{SUFFIX}"

    def temporary(self, kind: RecordKind, name: bytes) -> Path:
        """Where it is written first; makes the folder."""
        folder = self.file(kind, name).parent
        for path in (folder.parent, folder):
            path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        return folder / f"{name.hex()}.tmp-{os.getpid()}-{next(self._numbers)}"

    def files(self) -> Iterator[tuple[RecordKind, Path]]:
        """Everything that lies where records do."""
        return records_below(self.path)

    def release(self) -> None:
        """Let another engine hold it."""
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def _create(self, root: Path) -> None:
        root.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        for path in (root, self.path):
            path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
            path.chmod(DIRECTORY_MODE)

    def _read_only(self, error: OSError) -> NamespaceDirectory:
        self.writable = False
        self.why_not = f"{self.path}: {error.strerror or error}"
        return self

    def _identify(self, identity: dict[str, Any]) -> None:
        """Write the identity down; a directory of another one begins anew."""
        if read_identity(self.path) == identity:
            return
        for name in (*FOLDERS.values(), "index.sqlite"):
            remove(self.path / name)
        temporary = self.path / f"{_NAMESPACE}.tmp-{os.getpid()}"
        text = json.dumps(identity, indent=1, sort_keys=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT, FILE_MODE)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / _NAMESPACE)


def read_identity(path: Path) -> dict[str, Any] | None:
    """The identity of a namespace's directory; None where it cannot be read."""
    try:
        found = json.loads((path / _NAMESPACE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def records_below(path: Path) -> Iterator[tuple[RecordKind, Path]]:
    """Every file in the folders of a namespace's records."""
    for kind, folder in FOLDERS.items():
        for file in sorted((path / folder).glob("*/*")):
            yield kind, file


def in_use(path: Path) -> bool:
    """Whether an engine holds a namespace's directory now."""
    try:
        descriptor = os.open(path / "LOCK", os.O_RDWR)
    except OSError:
        return False
    try:
        return not _locked(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Delete a file or a directory, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
