# SPDX-License-Identifier: Apache-2.0
"""Weights cut into files: a layer stays together, and a finished file is kept.

The cut depends on names and sizes alone, so equal weights give equal files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from splashpy.package.integrity import INDEX_NAME
from splashpy.package.progress import Cancelled, Progress
from splashpy.package.weights.safetensors_file import (
    Entry,
    entry_bytes,
    write_safetensors,
)
from splashpy.package.weights.tensor import Tensor
from splashpy.packing.target_files import json_bytes
from splashpy.protocol import LoadProgress

SHARD_BYTES = 2_000_000_000
"""Largest file, except where a single module is larger. What an interrupted run loses
is at most one file."""


@dataclass(frozen=True, slots=True)
class Shards:
    """Weights on their way to a directory.

    Attributes:
        entries: type and shape of every tensor.
        give: gives a tensor, once.
    """

    entries: Mapping[str, Entry]
    give: Callable[[str], Tensor]

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(map(entry_bytes, self.entries.values()))

    def plan(self, limit: int = SHARD_BYTES) -> dict[str, list[str]]:
        """File name to the tensors in it."""
        groups = _modules(self.entries)
        cuts: list[list[str]] = [[]]
        size = 0
        for group in groups:
            more = sum(entry_bytes(self.entries[name]) for name in group)
            if cuts[-1] and size + more > limit:
                cuts.append([])
                size = 0
            cuts[-1] += group
            size += more
        if len(cuts) == 1:
            return {"model.safetensors": cuts[0]}
        return {
            f"model-{number:05}-of-{len(cuts):05}.safetensors": names
            for number, names in enumerate(cuts, 1)
        }

    def write(
        self,
        directory: Path,
        progress: Progress,
        cancelled: Cancelled,
        limit: int = SHARD_BYTES,
    ) -> None:
        """Write the files that are not there yet, and their index.

        Args:
            directory: existing; a file appears in it when it is complete.
            progress: phase ``prepare``, in bytes of this directory.
            cancelled: polled before each tensor.
            limit: largest file.

        Raises:
            CancelledError: ``cancelled`` said yes; complete files stay.
        """
        plan, total, done = self.plan(limit), self.num_bytes, 0
        for left_over in directory.glob(".*.part"):
            left_over.unlink()  # of a call that was killed

        def step(name: str) -> None:
            nonlocal done
            done += entry_bytes(self.entries[name])
            progress(_preparing(name, done, total))

        for file, names in plan.items():
            final = directory / file
            if final.is_file():
                done += sum(entry_bytes(self.entries[name]) for name in names)
                continue
            part = directory / f".{file}.part"
            chosen = {name: self.entries[name] for name in names}
            try:
                write_safetensors(
                    part, chosen, self.give, done=step, cancelled=cancelled
                )
                part.replace(final)
            finally:
                part.unlink(missing_ok=True)
        if len(plan) > 1:
            (directory / INDEX_NAME).write_bytes(_index(plan, total))


def _modules(entries: Mapping[str, Entry]) -> list[list[str]]:
    """Names by module, layers in order of their number."""
    groups: dict[str, list[str]] = {}
    for name in sorted(entries, key=_by_number):
        groups.setdefault(name.rpartition(".")[0] or name, []).append(name)
    return list(groups.values())


def _by_number(name: str) -> list[tuple[int, str]]:
    return [
        (int(piece), "") if piece.isdecimal() else (-1, piece)
        for piece in re.split(r"(\d+)", name)
    ]


def _index(plan: Mapping[str, Sequence[str]], total: int) -> bytes:
    places = {name: file for file, names in plan.items() for name in names}
    return json_bytes(
        {
            "metadata": {"total_size": total},
            "weight_map": dict(sorted(places.items())),
        }
    )


def _preparing(item: str, done: int, total: int) -> LoadProgress:
    return LoadProgress(
        phase="prepare", done=done, total=total, unit="bytes", item=item
    )
