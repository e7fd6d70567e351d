# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from splashpy.package.progress import CancelledError
from splashpy.package.safetensors_header import read_header
from splashpy.packing.target_files import write_safetensors
from splashpy.protocol import LoadProgress

WEIGHTS = {
    "b.weight": mx.arange(6, dtype=mx.uint32).reshape(2, 3),
    "a.norm": mx.array([1.5, -2.25], dtype=mx.bfloat16),
    "c.bytes": mx.array([1, 2, 3], dtype=mx.uint8),
    "a.scales": mx.array([[0.1, 65504.0]], dtype=mx.float16),
    "empty": mx.zeros((0, 4), dtype=mx.float32),
}


def test_arrays_come_back_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_safetensors(WEIGHTS, path)

    read = mx.load(str(path))

    assert isinstance(read, dict)
    assert set(read) == set(WEIGHTS)
    for name, array in WEIGHTS.items():
        assert read[name].dtype == array.dtype
        assert mx.array_equal(read[name], array)


def test_the_order_of_arrays_does_not_change_the_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"

    write_safetensors(WEIGHTS, one)
    write_safetensors(dict(reversed(WEIGHTS.items())), other)

    assert one.read_bytes() == other.read_bytes()


def test_every_tensor_starts_at_a_multiple_of_its_item_size(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_safetensors(WEIGHTS, path)

    entries = read_header(path)

    data_start = path.stat().st_size - max(entry.end for entry in entries.values())
    for name, entry in entries.items():
        assert (data_start + entry.begin) % WEIGHTS[name].itemsize == 0


def test_progress_counts_tensors(tmp_path: Path) -> None:
    steps: list[LoadProgress] = []

    write_safetensors(WEIGHTS, tmp_path / "m", steps.append)

    assert [step.done for step in steps] == [1, 2, 3, 4, 5]
    assert {(step.phase, step.total, step.unit) for step in steps} == {
        ("prepare", 5, "tensors")
    }


def test_writing_stops_when_asked(tmp_path: Path) -> None:
    with pytest.raises(CancelledError):
        write_safetensors(WEIGHTS, tmp_path / "m", cancelled=lambda: True)
