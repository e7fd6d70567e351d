# SPDX-License-Identifier: Apache-2.0
"""Compile kernels and the runtime; keep what was compiled.

The kernel is compiled with the instrumentation of two sanitizers, whose calls the
runtime answers itself, and linked with the runtime into one library per kernel. What
was built is kept in the system's temporary directory under the hash of everything that
went into it, so a second run of the tests compiles nothing.
"""

from __future__ import annotations

import ctypes
import getpass
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
RUNTIME = ("cache", "findings", "hooks", "lanes", "launch", "memory")

_COMMON = ["-std=gnu++17", "-fPIC", "-fvisibility=hidden"]
_RUNTIME_FLAGS = [*_COMMON, "-O2", "-g0"]
_KERNEL_FLAGS = [
    *_COMMON,
    "-O1",
    "-g1",
    "-gdwarf-4",
    "-fno-exceptions",
    "-ffp-contract=off",
    "-fsanitize=thread",
    "-fsanitize=bounds,alignment,shift-exponent,integer-divide-by-zero",
    "-ftrivial-auto-var-init=pattern",
    "-Wno-attributes",
    "-Werror=uninitialized",
    f"-I{HERE / 'shim'}",
]
# Clang leaves out a load that a store to the same place follows, as in x += 1.
_CLANG_FLAGS = ["-mllvm", "-tsan-instrument-read-before-write=1"]
_FRAME = re.compile(r"kernel\.metal:(\d+)")


class CompileError(Exception):
    """The kernel is not valid; the message is the compiler's."""


@cache
def compiler() -> str | None:
    """Path of g++ or clang++; None where neither is installed."""
    return shutil.which("g++") or shutil.which("clang++")


def missing() -> str:
    """Why kernels cannot be compiled here; empty where they can."""
    if compiler() is None:
        return "needs a C++ compiler: neither g++ nor clang++ is installed"
    return ""


@cache
def _version() -> str:
    """First line of ``--version``, with "Free Software" where it is GCC's."""
    return subprocess.run(
        [str(compiler()), "--version"], capture_output=True, text=True, check=True
    ).stdout


@cache
def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"splashpy-msl-{getpass.getuser()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid == os.getuid():
        return folder
    # Somebody else made it: a library from there could be anything.
    return Path(tempfile.mkdtemp(prefix="splashpy-msl-"))


@cache
def _support() -> str:
    """Hash of the headers, of the runtime and of the compiler."""
    digest = hashlib.sha256(_version().encode())
    for path in sorted([*HERE.glob("shim/*"), *HERE.glob("runtime/*")]):
        digest.update(path.read_bytes())
    digest.update(" ".join(_flags() + _RUNTIME_FLAGS).encode())
    return digest.hexdigest()


def _flags() -> list[str]:
    gcc = "Free Software Foundation" in _version()
    return _KERNEL_FLAGS + ([] if gcc else _CLANG_FLAGS)


def _run(*arguments: str | Path) -> None:
    done = subprocess.run(
        [str(compiler()), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CompileError(done.stderr)


@cache
def _runtime_objects() -> tuple[Path, ...]:
    objects = []
    for name in RUNTIME:
        path = _folder() / f"{name}-{_support()[:32]}.o"
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=_folder()) as scratch:
                made = Path(scratch) / path.name
                _run(*_RUNTIME_FLAGS, "-c", HERE / f"runtime/{name}.cpp", "-o", made)
                made.replace(path)
        objects.append(path)
    return tuple(objects)


@cache
def build(text: str) -> Path:
    """Compile a translation unit and link it with the runtime.

    Returns:
        Path of the shared library, the same for the same text.

    Raises:
        CompileError: the compiler refuses the text.
    """
    key = hashlib.sha256((_support() + text).encode()).hexdigest()[:32]
    library = _folder() / f"{key}.so"
    if library.exists():
        return library
    with tempfile.TemporaryDirectory(dir=_folder()) as scratch:
        source, compiled = Path(scratch) / "kernel.cpp", Path(scratch) / "kernel.o"
        linked = Path(scratch) / library.name
        source.write_text(text, encoding="utf-8")
        _run(*_flags(), "-c", source, "-o", compiled)
        _run("-shared", compiled, *_runtime_objects(), "-o", linked)
        linked.replace(library)
    return library


@cache
def load(library: Path) -> ctypes.PyDLL:
    """The library, loaded once; it has one state, so a call keeps Python's lock."""
    return ctypes.PyDLL(str(library))


@cache
def line_of(library: Path, address: int) -> int:
    """Line of the kernel's text at an address of the library; 0 where unknown.

    Where the address lies in a function of the shim headers that was inlined, the
    answer is the innermost line of the kernel that called it.
    """
    tool = shutil.which("addr2line")
    if tool is None or address < 0:
        return 0
    done = subprocess.run(
        [tool, "-i", "-e", str(library), hex(address)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = _FRAME.search(done.stdout)
    return int(found.group(1)) if found else 0
