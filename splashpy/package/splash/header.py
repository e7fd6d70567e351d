# SPDX-License-Identifier: Apache-2.0
"""The first bytes of a Splash file: is it the file it should be?"""

from __future__ import annotations

import struct
from pathlib import Path

from splashpy.errors import IntegrityError
from splashpy.package.splash.layout import HEADER_BYTES, FileLayout


def header_bytes(layout: FileLayout) -> bytes:
    """Magic and the two numbers after it."""
    return struct.pack("<8sII", layout.magic, layout.layer, layout.kind)


def check_image(path: Path, layout: FileLayout) -> None:
    """Compare the size and the header of a file with its layout.

    Raises:
        IntegrityError: they differ, or the file cannot be read.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except OSError as error:
        reason = error.strerror or str(error)
        raise IntegrityError(f"{path}: cannot be read: {reason}") from None
    if size != layout.num_bytes:
        raise IntegrityError(
            f"{path}: wrong size",
            why=f"expected {layout.num_bytes} bytes, found {size}",
        )
    if header != header_bytes(layout):
        raise IntegrityError(
            f"{path}: not the header of this file",
            why=f"expected {header_bytes(layout).hex()}, found {header.hex()}",
        )
