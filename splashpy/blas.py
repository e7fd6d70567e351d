# SPDX-License-Identifier: Apache-2.0
"""Give mlx a fast BLAS on Linux, before ``mlx.core`` is first imported.

mlx's Linux wheel carries a reference BLAS. An OpenBLAS loaded with ``RTLD_GLOBAL``
before mlx resolves those symbols instead, which makes matrix products of several rows
an order of magnitude faster. The price: with OpenBLAS the row count changes the
summation order (differences of about 5e-5 in logits), so a block of rows no longer
equals one-row decoding bit for bit. ``SPLASHPY_BLAS`` chooses:

``auto`` (default)
    OpenBLAS where it is installed, else the reference BLAS.
``reference``
    mlx's own; bit-exact across row counts.
a path
    that shared library.

Every room that uses mlx calls :func:`prepare` in its ``__init__``, so no entry point
can forget it. On macOS mlx uses Accelerate and this module does nothing.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from splashpy.errors import UsageError

_NAMES = ("libopenblas.so.0", "libopenblas.so")


@dataclass(frozen=True, slots=True)
class Blas:
    """Which BLAS serves this process.

    Attributes:
        name: ``accelerate``, ``openblas`` or ``reference``.
        core: kernel set OpenBLAS chose, such as ``SkylakeX``; empty for others.
        threads: OpenBLAS computes with; 0 for others.
        note: one sentence when a faster choice exists; empty otherwise.
    """

    name: str
    core: str = ""
    note: str = ""
    threads: int = 0

    def __str__(self) -> str:
        return f"{self.name} ({self.core})" if self.core else self.name


@cache
def prepare() -> Blas:
    """Load the chosen BLAS once; later calls return the same answer.

    Raises:
        UsageError: ``SPLASHPY_BLAS`` names a library that cannot be loaded.
    """
    if sys.platform != "linux":
        return Blas("accelerate")
    choice = os.environ.get("SPLASHPY_BLAS") or "auto"
    if choice == "reference":
        return Blas("reference")
    if "mlx.core" in sys.modules:
        return Blas("reference", note="mlx was imported before splashpy")
    _choose_openblas_kernels()
    if choice != "auto":
        try:
            return _describe(ctypes.CDLL(choice, mode=ctypes.RTLD_GLOBAL))
        except OSError as error:
            raise UsageError(
                f"SPLASHPY_BLAS={choice} cannot be loaded: {error}",
                fix=["SPLASHPY_BLAS=auto", "SPLASHPY_BLAS=reference"],
            ) from None
    for name in _NAMES:
        try:
            return _describe(ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL))
        except OSError:
            continue
    return Blas(
        "reference",
        note="OpenBLAS is not installed; decoding is several times slower without it "
        "(Debian and Ubuntu: apt install libopenblas0-pthread)",
    )


def _choose_openblas_kernels() -> None:
    """Name the kernels where OpenBLAS 0.3.21 does not know a newer processor."""
    if "OPENBLAS_CORETYPE" in os.environ:
        return
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return
    if " avx512f " in flags:
        os.environ["OPENBLAS_CORETYPE"] = "SkylakeX"


def _describe(library: ctypes.CDLL) -> Blas:
    try:
        corename = library.openblas_get_corename
    except AttributeError:
        return Blas("openblas")
    corename.restype = ctypes.c_char_p
    threads = getattr(library, "openblas_get_num_threads", lambda: 0)()
    return Blas("openblas", core=(corename() or b"").decode(), threads=threads)
