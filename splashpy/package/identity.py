# SPDX-License-Identifier: Apache-2.0
"""Whether a model on disk is still the same one, without reading its weights."""

from __future__ import annotations

import hashlib
from pathlib import Path

_BEGINNING = 1 << 16  # of a file of weights: its header


def files_identity(directory: Path) -> str:
    """A digest that changes when a file of a model is replaced.

    Small files count with their contents; files of weights with their size, their time
    and their beginning, where the names, types and places of the tensors are.

    Args:
        directory: of a target or a drafter.
    """
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            about = path.stat()
            facts = [path.relative_to(directory).as_posix(), about.st_size]
            if path.suffix != ".json":
                facts.append(about.st_mtime_ns)
            digest.update(repr(facts).encode())
            with path.open("rb") as file:
                digest.update(
                    file.read() if path.suffix == ".json" else file.read(_BEGINNING)
                )
    return digest.hexdigest()
