# SPDX-License-Identifier: Apache-2.0
"""A drafter to be packed: what its files will hold, before a weight is read.

Only its matrices are ever packed; norms, base kernels and the codebooks of the selector
stay as they are. Names become those of the published checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splashpy.errors import ModelKindError, UsageError
from splashpy.models.dflash2_parse import parse_config
from splashpy.package import frequent_tokens
from splashpy.package.fields import read_json
from splashpy.package.integrity import refuse_code
from splashpy.package.weights.safetensors_file import Checkpoint, Entry
from splashpy.package.weights.tensor import Tensor
from splashpy.packing.quantize_on_demand import (
    Packing,
    QuantizeOnDemand,
    packed_entries,
)
from splashpy.packing.shards import Shards

UNPACKED_BITS = 16

_GROUP_SIZE = 64
_CODEBOOKS = ("predecessor_codebook", "successor_codebook")
_RENAMED = {
    "encoder.fc.weight": "fc.weight",
    "encoder.output_norm_enc.weight": "hidden_norm.weight",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDraft:
    """A drafter as it will be written.

    Attributes:
        config: config.json.
        shards: the weights.
        others: further files by name, such as its list of frequent tokens.
        changed: weights are quantized here.
    """

    config: dict[str, Any]
    shards: Shards
    others: Mapping[str, bytes]
    changed: bool


def plan_draft(directory: Path, bits: int | None) -> PlannedDraft:
    """Plan a drafter's directory.

    Args:
        directory: config.json and safetensors.
        bits: 4 or 8 packs the matrices, 16 or None keeps them.

    Raises:
        ModelKindError: not a drafter.
        IntegrityError, RemoteCodeError: as for any model directory.
        UsageError: it is packed already, with other bits.
    """
    config = read_json(directory / "config.json")
    refuse_code(config, str(directory / "config.json"))
    parse_config(config, str(directory))
    checkpoint = _Renamed(Checkpoint.open(directory))
    entries = {name: checkpoint.entry(name) for name in checkpoint}
    frequent = directory / frequent_tokens.FILE_NAME
    others = {frequent.name: frequent.read_bytes()} if frequent.is_file() else {}
    return plan_draft_tensors(config, checkpoint, entries, bits, str(directory), others)


def plan_draft_tensors(
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    entries: Mapping[str, Entry],
    bits: int | None,
    where: str,
    others: Mapping[str, bytes] | None = None,
) -> PlannedDraft:
    """Plan a drafter from its parts.

    Args:
        config: config.json.
        tensors: by published name.
        entries: their types and shapes.
        bits: as in :func:`plan_draft`.
        where: what to call it in messages.
        others: files that come with it.

    Raises:
        UsageError: it is packed already, with other bits.
    """
    config = dict(config)
    stored = config.get("quantization")
    chosen: dict[str, Packing] = {}
    if isinstance(stored, dict):
        if bits not in (None, stored.get("bits")):
            raise UsageError(
                f"{where} is packed already, with {stored.get('bits')} bits",
                why="packing it again would lose more than it saves",
                fix=["leave --draft-bits out, or name the unpacked drafter"],
            )
    elif bits is not None and bits != UNPACKED_BITS:
        chosen = _matrices(entries, Packing(bits, _GROUP_SIZE))
        config["quantization"] = {
            "group_size": _GROUP_SIZE,
            "bits": bits,
            "mode": "affine",
        }
    return PlannedDraft(
        config=config,
        shards=Shards(
            packed_entries(entries, chosen), QuantizeOnDemand(tensors, chosen)
        ),
        others=others or {},
        changed=bool(chosen),
    )


def _matrices(entries: Mapping[str, Entry], packing: Packing) -> dict[str, Packing]:
    return {
        name.removesuffix(".weight"): packing
        for name, (_, shape) in entries.items()
        if name.endswith(".weight")
        and len(shape) == 2
        and shape[-1] % packing.group_size == 0
    }


class _Renamed(Mapping[str, Tensor]):
    """A checkpoint under the published names."""

    def __init__(self, checkpoint: Checkpoint):
        self._checkpoint = checkpoint
        self._names = {_published(name): name for name in checkpoint}
        if len(self._names) != len(checkpoint):
            raise ModelKindError("two tensors of the drafter have the same meaning")

    def __getitem__(self, name: str) -> Tensor:
        return self._checkpoint[self._names[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def entry(self, name: str) -> Entry:
        """Type and shape."""
        return self._checkpoint.entry(self._names[name])


def _published(name: str) -> str:
    name = name.removeprefix("model.")
    stem = name.removesuffix(".weight")
    if stem.endswith(_CODEBOOKS):
        return stem
    return _RENAMED.get(name, name)
