# SPDX-License-Identifier: Apache-2.0
"""States to records and back; on the engine's thread.

Rows of full attention are cut into blocks of :data:`~splashpy.cache.chain.BLOCK`
tokens; what cannot be cut (windows, recurrent states) belongs to one position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mlx.core as mx
import numpy as np

from splashpy.cache.disk.record import HostArray
from splashpy.models.dflash2_context import DrafterContext
from splashpy.models.state import TargetState

Arrays = dict[str, HostArray]

_NAMES = {
    mx.float32: "F32",
    mx.float16: "F16",
    mx.bfloat16: "BF16",
    mx.uint32: "U32",
    mx.int32: "I32",
    mx.uint8: "U8",
}
_TYPES = {name: dtype for dtype, name in _NAMES.items()}
_RAW = ("F16", "BF16")


def rows_out(state: TargetState, start: int, end: int) -> Arrays:
    """Copies of the rows of full attention, named ``rows.LANE.PART``."""
    parts = {
        f"rows.{lane}.{part}": array
        for lane, each in enumerate(state.lanes)
        for part, array in enumerate(each.rows(start, end))
    }
    return _to_host(parts)


def snapshot_out(state: TargetState, length: int) -> Arrays:
    """Copies of what was kept at ``length``, named ``kept.LANE.PART``."""
    parts = {
        f"kept.{lane}.{part}": array
        for lane, arrays in enumerate(state.kept_at(length))
        for part, array in enumerate(arrays)
    }
    return _to_host(parts)


def context_out(context: DrafterContext) -> Arrays:
    """Copies of a drafter's rows, named ``LAYER.k`` and ``LAYER.v``."""
    parts: dict[str, mx.array] = {}
    for index, layer in enumerate(context.layers):
        if len(layer):
            parts[f"{index}.k"], parts[f"{index}.v"] = layer.rows
    return _to_host(parts)


def rows_in(state: TargetState, arrays: Mapping[str, HostArray]) -> None:
    """Append rows from :func:`rows_out`; evaluates them."""
    for lane, parts in _by_owner(arrays, "rows.", len(state.lanes)):
        state.lanes[lane].append(parts)
    mx.eval(state.arrays)


def snapshot_in(
    state: TargetState, length: int, arrays: Mapping[str, HostArray]
) -> None:
    """Let a state whose rows are in stand at ``length``."""
    parts = dict(_by_owner(arrays, "kept.", len(state.lanes)))
    state.stand_at(length, [parts.get(lane, []) for lane in range(len(state.lanes))])


def context_in(
    context: DrafterContext, position: int, arrays: Mapping[str, HostArray]
) -> None:
    """Fill an empty context of a drafter."""
    context.position = position
    for index, layer in enumerate(context.layers):
        if f"{index}.k" in arrays:
            layer.fill([_to_mlx(arrays[f"{index}.{part}"]) for part in "kv"])
    mx.eval(context.arrays)


def _by_owner(
    arrays: Mapping[str, HostArray], prefix: str, owners: int
) -> list[tuple[int, Sequence[mx.array]]]:
    found = []
    for owner in range(owners):
        parts = []
        while (array := arrays.get(f"{prefix}{owner}.{len(parts)}")) is not None:
            parts.append(_to_mlx(array))
        if parts:
            found.append((owner, parts))
    return found


def _to_host(parts: Mapping[str, mx.array]) -> Arrays:
    raw = {
        name: mx.contiguous(a.view(mx.uint16) if _NAMES[a.dtype] in _RAW else a)
        for name, a in parts.items()
    }
    mx.eval(list(raw.values()))
    return {
        name: HostArray(_NAMES[parts[name].dtype], np.array(array))
        for name, array in raw.items()
    }


def _to_mlx(array: HostArray) -> mx.array:
    found = mx.array(array.data)
    return found.view(_TYPES[array.dtype]) if array.dtype in _RAW else found
