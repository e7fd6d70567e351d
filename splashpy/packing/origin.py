# SPDX-License-Identifier: Apache-2.0
"""Where a part came from, with digests that are worked out beside other work.

Hashing the source takes a fifth of the time of packing it, and neither needs the other:
a manifest is written last.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from splashpy.package.components import Source, SourceFile
from splashpy.package.progress import Cancelled
from splashpy.packing.inputs import Input
from splashpy.packing.part import source_file


class Origin:
    """A source that is known, or files that can be hashed.

    Attributes:
        identity: JSON that is the same as long as the files are.
    """

    def __init__(self, source: Source | None, identity: Any):
        """Use :meth:`known` or :meth:`of_files`."""
        self.identity = identity
        self._future: Future[Source] | None = None
        self._files: tuple[Input, Sequence[Path], Cancelled] | None = None
        if source is not None:
            self._future = Future()
            self._future.set_result(source)

    @classmethod
    def known(cls, source: Source, content: str) -> Origin:
        """What is listed somewhere already.

        Args:
            source: where the part came from.
            content: digest of the files it is read from now, which may be packed in
                another way than those of another package with the same source.
        """
        return cls(source, [source.repo_id, source.revision, content])

    @classmethod
    def of_files(
        cls, given: Input, files: Sequence[Path], cancelled: Cancelled
    ) -> Origin:
        """Files not looked into yet.

        Args:
            given: what the part was called.
            files: what a packer reads.
            cancelled: polled while they are hashed.
        """
        facts = [(path, path.stat()) for path in files]
        origin = cls(
            None, [[str(path), at.st_size, at.st_mtime_ns] for path, at in facts]
        )
        origin._files = (given, files, cancelled)
        return origin

    def begin(self) -> None:
        """Start hashing on a thread of its own, unless that was done."""
        if self._future is None:
            self._future = Future()
            threading.Thread(
                target=self._hash, args=(self._future,), name="splashpy-digest"
            ).start()

    @property
    def source(self) -> Source:
        """What a manifest says; waits for the digests.

        Raises:
            CancelledError: somebody asked to stop.
            OSError: a file cannot be read.
        """
        self.begin()
        assert self._future is not None
        return self._future.result()

    def _hash(self, future: Future[Source]) -> None:
        assert self._files is not None
        given, files, cancelled = self._files
        try:
            listed = tuple(source_file(path, path.name, cancelled) for path in files)
            future.set_result(as_source(given, listed))
        except BaseException as error:  # noqa: BLE001 - raised to whoever asks
            future.set_exception(error)


def as_source(given: Input, files: tuple[SourceFile, ...]) -> Source:
    """A source of these files: a repository's revision, or their digests'."""
    if given.repo:
        return Source(
            kind="huggingface",
            repo_id=given.repo,
            revision=given.revision,
            files=files,
        )
    lines = "".join(f"{file.sha256} {file.path}\n" for file in files)
    return Source(
        kind="local",
        repo_id=given.name,
        revision=hashlib.sha256(lines.encode()).hexdigest(),
        files=files,
    )
