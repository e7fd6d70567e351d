# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from splashpy.errors import IntegrityError
from splashpy.package.safetensors_header import TensorEntry, read_header


def tensor(begin: int, end: int, **changes: Any) -> dict[str, Any]:
    entry = {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
    return entry | changes


def write(path: Path, header: Any, data: bytes) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def test_a_whole_file_lists_its_tensors(path: Path) -> None:
    save_file({"b": np.zeros((2, 3), np.float16), "a": np.zeros(4, np.float32)}, path)

    assert read_header(path) == {
        "a": TensorEntry("F32", (4,), 0, 16),
        "b": TensorEntry("F16", (2, 3), 16, 28),
    }


def test_a_file_cut_short_names_both_sizes(path: Path) -> None:
    save_file({"a": np.zeros(1000, np.float32)}, path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 7)

    with pytest.raises(IntegrityError, match="cut short") as failure:
        read_header(path)

    assert str(path) in failure.value.message
    assert failure.value.why == f"expected {size} bytes, found {size - 7}"


def test_a_file_with_more_than_it_says_is_refused(path: Path) -> None:
    write(path, {"a": tensor(0, 4)}, bytes(5))

    with pytest.raises(IntegrityError, match="longer than it says"):
        read_header(path)


@pytest.mark.parametrize("length", [2**63, 10**9, 3000])
def test_a_broken_header_length_is_refused(path: Path, length: int) -> None:
    path.write_bytes(struct.pack("<Q", length) + b"{}" + bytes(100))

    with pytest.raises(IntegrityError, match="damaged header or cut short") as failure:
        read_header(path)

    assert f"{length} bytes is announced, the file has 110 bytes" in failure.value.why


@pytest.mark.parametrize("content", [b"", b"\x02\0\0"])
def test_a_file_without_room_for_a_header_is_refused(
    path: Path, content: bytes
) -> None:
    path.write_bytes(content)

    with pytest.raises(IntegrityError, match="too short"):
        read_header(path)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"not json",
        b"[]",
        b'{"a": 1}',
        b"\xff\xfe",
        b"[" * 50_000,
        {"a": tensor(0, 4, shape=[5])},
        {"a": tensor(0, 4, shape=[2**64, 2**64])},
        {"a": tensor(0, 4, shape=[2**62] * 1000)},
        {"a": tensor(0, 4, shape=[10**4000] * 1000)},
        {"a": tensor(0, 4, shape=[4] + [1] * 100)},
        {"a": tensor(0, 0, shape=[0, 2**62, 2**62])},
        {"a": tensor(0, 4, shape=[-4])},
        {"a": tensor(0, 4, shape=[4.0])},
        {"a": tensor(0, 4, shape="4")},
        {"a": tensor(0, 4, dtype=7)},
        {"a": tensor(0, 4, data_offsets=[4, 0])},
        {"a": tensor(0, 4, data_offsets=[0])},
        {"a": {"dtype": "U8", "shape": [4]}},
        {"a": tensor(0, 4), "b": tensor(2, 4)},
        {"a": tensor(0, 4), "b": tensor(0, 4)},
        {"a": tensor(0, 2), "b": tensor(3, 4)},
        {"a": tensor(1, 4)},
        b'{"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},'
        b' "a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}',
    ],
)
def test_a_damaged_header_is_refused(path: Path, header: Any) -> None:
    write(path, header, bytes(4))

    with pytest.raises(IntegrityError):
        read_header(path)


@pytest.mark.parametrize("make", [Path.mkdir, lambda _: None])
def test_what_cannot_be_read_is_named(path: Path, make: Callable[[Path], None]) -> None:
    make(path)

    with pytest.raises(IntegrityError, match=r"model\.safetensors: cannot be read"):
        read_header(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 400), value=st.integers(0, 255), cut=st.integers(0, 40))
def test_whatever_happens_to_a_file_the_library_agrees(
    path: Path, position: int, value: int, cut: int
) -> None:
    """Accepted here means readable by the safetensors library."""
    save_file({"x": np.ones((3, 5), np.float16), "y": np.zeros(9, np.int32)}, path)
    content = bytearray(path.read_bytes())
    content[position % len(content)] = value
    path.write_bytes(bytes(content[: len(content) - cut]))

    try:
        read_header(path)
    except IntegrityError:
        return
    try:
        with safe_open(path, "numpy") as file:
            file.keys()
    except SafetensorError as error:
        if "unknown variant" not in str(error):  # a dtype only the library must know
            raise
