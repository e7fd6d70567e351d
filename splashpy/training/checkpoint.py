# SPDX-License-Identifier: Apache-2.0
"""Where a training run stands, on disk.

A checkpoint is a directory that appears under its final name only when it is complete;
a process killed while writing leaves the one before it. The last few are kept.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_unflatten

from splashpy.errors import InputFileError
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.training.files import read_json, save_arrays, write_atomic

KEPT = 3
"""Checkpoints a run keeps."""

_PREFIX = "step-"
_UNFINISHED = ".unfinished"


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of one run.

    Attributes:
        directory: where they are.
    """

    directory: Path

    @property
    def latest(self) -> Path | None:
        """The newest complete checkpoint."""
        found = self._all()
        return found[-1] if found else None

    def save(
        self, step: int, network: DFlashNetwork, optimizer: optim.Optimizer
    ) -> None:
        """Write one and forget the oldest."""
        place = self.directory / f"{_PREFIX}{step:08d}"
        work = self.directory / _UNFINISHED
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        _save(work / "network.safetensors", network.parameters())
        _save(work / "optimizer.safetensors", optimizer.state)
        write_atomic(work / "state.json", json.dumps({"step": step}))
        shutil.rmtree(place, ignore_errors=True)
        work.replace(place)
        for old in self._all()[:-KEPT]:
            shutil.rmtree(old)

    def restore(self, network: DFlashNetwork, optimizer: optim.Optimizer) -> int:
        """Bring both to the newest checkpoint.

        Returns:
            The number of steps done; 0 without a checkpoint.

        Raises:
            InputFileError: the checkpoint is damaged.
        """
        place = self.latest
        if place is None:
            return 0
        step = int(read_json(place / "state.json")["step"])
        try:
            weights = mx.load(str(place / "network.safetensors"))
            state = mx.load(str(place / "optimizer.safetensors"))
            assert isinstance(weights, dict)
            assert isinstance(state, dict)
            network.load_weights(list(weights.items()))
        except (RuntimeError, ValueError) as error:
            raise InputFileError(
                f"{place} is damaged",
                why=str(error),
                fix=[f"remove {place}; the checkpoint before it is used then"],
            ) from None
        optimizer.state = tree_unflatten(list(state.items()))
        mx.eval(network.parameters(), optimizer.state)
        return step

    def _all(self) -> list[Path]:
        return sorted(self.directory.glob(f"{_PREFIX}*"))


def _save(path: Path, tree: Any) -> None:
    flat: Any = tree_flatten(tree)
    save_arrays(path, dict(flat))
