# SPDX-License-Identifier: Apache-2.0
"""The PyPI package dflash 0.1.0, ready to be compared with.

Importing this module ends the program where the package is missing.
"""

from __future__ import annotations

import shutil
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
from mlx_lm.tokenizer_utils import TokenizerWrapper

try:
    package: Any = import_module("dflash.model_mlx")
except ImportError as error:
    sys.exit(
        f"dflash 0.1.0 cannot be used here: {error}\n"
        "Install it without the versions it pins: pip install --no-deps dflash==0.1.0"
    )

# The package asks a model hub for a name; here the name is a directory.
package.snapshot_download = lambda path, **_: str(path)


def load_drafter(directory: Path) -> Any:
    """The package's drafter for a checkpoint directory.

    It reads every weight file it finds, so it sees a copy without other arrays.
    """
    with TemporaryDirectory() as copy:
        for name in ("config.json", "model.safetensors"):
            shutil.copy(directory / name, copy)
        drafter = package.load_draft(copy)
        mx.eval(drafter.parameters())
    return drafter


class OrderedCache:
    """A context in time order, in place of the package's rotating one."""

    def __init__(self, keep: int):
        self._keep = keep
        self.offset = 0
        self.held: Any = None

    def update_and_fetch(
        self, keys: mx.array, values: mx.array
    ) -> tuple[mx.array, mx.array]:
        """Append rows; the newest ``keep`` of all."""
        self.offset += keys.shape[2]
        if self.held is not None:
            keys = mx.concatenate([self.held[0], keys], axis=2)
            values = mx.concatenate([self.held[1], values], axis=2)
        self.held = keys[:, :, -self._keep :], values[:, :, -self._keep :]
        return self.held


class NoText(TokenizerWrapper):
    """A tokenizer without words, for a loop that wants one."""

    eos_token_ids: Any = frozenset()
    detokenizer: Any = SimpleNamespace(
        add_token=lambda token: None, finalize=lambda: None, last_segment=""
    )

    def __init__(self) -> None:
        pass
