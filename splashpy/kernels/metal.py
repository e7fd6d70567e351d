# SPDX-License-Identifier: Apache-2.0
"""The one place that knows whether there is a GPU, and that builds kernels for it.

The text of a kernel lies in ``metal_kernels/``: ordinary Metal functions that take
pointers and sizes. MLX writes the signature of the kernel itself, so what it is given
here is a short body that reserves threadgroup memory and calls one of them.

A pipeline may allow fewer threads per threadgroup than the device does; MLX says so
when the kernel is first evaluated. Such a limit is remembered here, and operations
choose their threadgroups within it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import mlx.core as mx

MOST_THREADS = 1024
THREADGROUP_BYTES = 32 << 10
"""Threadgroup memory of every Apple GPU."""

SIMD_WIDTH = 32

SWITCH = "SPLASHPY_KERNELS"
"""Variable that chooses which kernels may run."""

_SILENT_LINES = re.compile(r"^[ \t]*(?://[^\n]*)?\n", re.MULTILINE)
_REFUSED = re.compile(r"maximum allowed threads per threadgroup \((\d+)\)")


@dataclass(frozen=True, slots=True)
class Kernel:
    """What MLX is told about one kernel.

    Attributes:
        name: unique; ``metal_kernels/<name>.metal`` unless ``files`` says otherwise.
        inputs: parameter names, in order.
        outputs: likewise.
        body: statements of the kernel.
        files: names of the Metal files it is made of, in order.
        row_contiguous: whether inputs are copied to lie row by row.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: str
    files: tuple[str, ...] = ()
    row_contiguous: bool = True

    @property
    def header(self) -> str:
        """Text before the kernel, without what MLX would carry through every call."""
        text = "\n".join(source(name) for name in self.files or (self.name,))
        return _SILENT_LINES.sub("", text)


def use_metal() -> bool:
    """Whether this process runs operations on a Metal GPU."""
    return mx.metal.is_available() and mx.default_device() == mx.gpu


def switch() -> str:
    """What ``SPLASHPY_KERNELS`` says; empty when it is not set."""
    return os.environ.get(SWITCH, "")


@cache
def source(name: str) -> str:
    """Text of ``metal_kernels/<name>.metal``.

    An installed wheel holds the folder inside the package; a checkout has it beside
    the package.
    """
    return (_folder() / f"{name}.metal").read_text(encoding="utf-8")


def sources() -> dict[str, str]:
    """The text of every Metal file, by name."""
    return {path.stem: source(path.stem) for path in sorted(_folder().glob("*.metal"))}


@cache
def build(kernel: Kernel) -> Callable[..., list[mx.array]]:
    """The kernel, ready to be called; the same object for the same kernel."""
    made: Any = mx.fast.metal_kernel(
        name=f"splashpy_{kernel.name}",
        input_names=list(kernel.inputs),
        output_names=list(kernel.outputs),
        source=kernel.body,
        header=kernel.header,
        ensure_row_contiguous=kernel.row_contiguous,
    )
    return made


_limits: dict[str, int] = {}


def thread_limit(kernel: str) -> int:
    """Threads a threadgroup of this kernel may have here, as far as is known."""
    return _limits.get(kernel, MOST_THREADS)


def limit_threads(kernel: str, threads: int) -> None:
    """Remember what a pipeline allows; of several shapes the least."""
    _limits[kernel] = min(threads, thread_limit(kernel))


def refused_threads(error: Exception) -> int:
    """The limit in MLX's message about a threadgroup that is too large; else 0."""
    found = _REFUSED.search(str(error))
    return int(found.group(1)) if found else 0


def whole_simdgroups(threads: int, kernel: str) -> int:
    """The nearest multiple of a simdgroup's width, within the kernel's limit."""
    wanted = -(-threads // SIMD_WIDTH) * SIMD_WIDTH
    allowed = thread_limit(kernel) // SIMD_WIDTH * SIMD_WIDTH
    return max(SIMD_WIDTH, min(wanted, allowed))


def _folder() -> Path:
    installed = Path(str(files("splashpy") / "metal_kernels"))
    if installed.is_dir():
        return installed
    return Path(str(files("splashpy"))).parent / "metal_kernels"
