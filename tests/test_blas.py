# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import splashpy

ROOT = Path(splashpy.__file__).parent
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="a choice on Linux only")


def ask(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.strip()


DESCRIBE = "from splashpy import blas; print(blas.prepare())"


@LINUX
def test_the_reference_can_be_asked_for() -> None:
    assert ask(DESCRIBE, SPLASHPY_BLAS="reference") == "reference"


@LINUX
def test_an_installed_openblas_is_found_and_named() -> None:
    import ctypes.util  # noqa: PLC0415 - only this test looks for the library itself

    found = ask(DESCRIBE)
    if ctypes.util.find_library("openblas"):
        assert found.startswith("openblas")
    else:
        assert found == "reference"


@LINUX
def test_an_empty_variable_means_no_choice() -> None:
    assert ask(DESCRIBE, SPLASHPY_BLAS="") == ask(DESCRIBE)


@LINUX
def test_the_users_own_choice_of_kernels_is_kept() -> None:
    code = "import os; from splashpy import blas; blas.prepare(); " + (
        "print(os.environ['OPENBLAS_CORETYPE'])"
    )
    assert ask(code, OPENBLAS_CORETYPE="Haswell") == "Haswell"


@LINUX
def test_a_library_that_cannot_be_loaded_is_a_clear_error() -> None:
    code = (
        "from splashpy import blas, errors\n"
        "try: blas.prepare()\n"
        "except errors.UsageError as error: print(error.message)"
    )
    assert "SPLASHPY_BLAS=/no/such.so cannot be loaded" in ask(
        code, SPLASHPY_BLAS="/no/such.so"
    )


@LINUX
def test_without_openblas_the_note_says_what_to_install() -> None:
    code = (
        "import ctypes\n"
        "def missing(*a, **k): raise OSError\n"
        "ctypes.CDLL = missing\n"
        "from splashpy import blas; print(blas.prepare().note)"
    )
    assert "libopenblas0" in ask(code)


def test_every_room_that_uses_mlx_chooses_the_blas_first() -> None:
    """Whichever module is imported first, its room's __init__ runs before mlx."""
    for path in ROOT.rglob("*.py"):
        imported = {
            name.name if isinstance(node, ast.Import) else node.module or ""
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in node.names
        }
        if any(name.split(".")[0] in {"mlx", "mlx_lm"} for name in imported):
            inside = path.relative_to(ROOT)
            room = ROOT / inside.parts[0] / "__init__.py"
            assert "blas.prepare()" in room.read_text(encoding="utf-8"), path
