# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of unpacked weights, asked for packed ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from splashpy.errors import ModelKindError
from splashpy.package.weights.safetensors_file import Entry
from splashpy.package.weights.tensor import Tensor
from splashpy.packing.quantize import quantize


@dataclass(frozen=True, slots=True)
class Packing:
    """How one module is packed: bits of a code, and weights that share a scale."""

    bits: int
    group_size: int


class QuantizeOnDemand:
    """Gives the tensors of a checkpoint, those of chosen modules packed.

    A matrix is packed when the first of its three tensors is asked for; each is
    forgotten when it has been given, so it can be had once.
    """

    def __init__(self, tensors: Mapping[str, Tensor], packings: Mapping[str, Packing]):
        """Nothing is packed yet.

        Args:
            tensors: the checkpoint, by name.
            packings: module (``M`` of ``M.weight``) to how it is packed.
        """
        self._tensors = tensors
        self._packings = packings
        self._ready: dict[str, Tensor] = {}

    def __call__(self, name: str) -> Tensor:
        """One tensor.

        Raises:
            ModelKindError: the checkpoint has no such tensor, or weights that are no
                numbers.
        """
        if name in self._ready:
            return self._ready.pop(name)
        module = name.rpartition(".")[0]
        packing = self._packings.get(module)
        if packing is None:
            return self._plain(name)
        weight = f"{module}.weight"
        result = quantize(
            self._plain(weight),
            group_size=packing.group_size,
            bits=packing.bits,
            name=weight,
        )
        self._ready |= {
            weight: result.weight,
            f"{module}.scales": result.scales,
            f"{module}.biases": result.biases,
        }
        return self._ready.pop(name)

    def _plain(self, name: str) -> Tensor:
        try:
            return self._tensors[name]
        except KeyError:
            raise ModelKindError(f"tensor {name} is missing") from None


def packed_entries(
    entries: Mapping[str, Entry], packings: Mapping[str, Packing]
) -> dict[str, Entry]:
    """Types and shapes after packing.

    Args:
        entries: of the checkpoint.
        packings: module to how it is packed.
    """
    result: dict[str, Entry] = {}
    for name, (dtype, shape) in entries.items():
        module = name.rpartition(".")[0]
        packing = packings.get(module)
        if packing is None:
            result[name] = dtype, shape
            continue
        *lead, columns = shape
        groups = *lead, columns // packing.group_size
        result[name] = "U32", (*lead, columns * packing.bits // 32)
        result[f"{module}.scales"] = result[f"{module}.biases"] = dtype, groups
    return result
