# SPDX-License-Identifier: Apache-2.0
"""A record proves itself: nothing that was changed is ever read as numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from splashpy.cache.disk.record import BadRecord, HostArray, Record, read, write

ABOUT = {"kind": "block", "ns": "ab" * 32, "position": "256"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    numbers = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    halves = np.arange(10, dtype=np.uint16)
    arrays = {"rows.0.0": HostArray("F32", numbers), "b": HostArray("BF16", halves)}
    path = tmp_path / "record.spkv"
    size = write(path, Record(ABOUT, arrays), temporary=tmp_path / "record.tmp")
    assert size == path.stat().st_size
    return path


def test_a_record_comes_back_as_it_was_written(path: Path) -> None:
    record = read(path, ABOUT)
    rows = record.arrays["rows.0.0"].data
    assert rows.tolist() == np.arange(24).reshape(2, 3, 4).tolist()
    assert record.arrays["b"].dtype == "BF16"
    assert record.arrays["b"].data.tolist() == list(range(10))


def test_other_tools_can_read_it(path: Path) -> None:
    with safe_open(path, "np") as file:
        assert file.metadata()["fmt"] == "splashpy-kv"
        assert file.get_tensor("rows.0.0").shape == (2, 3, 4)


def test_a_change_of_any_byte_is_noticed(path: Path) -> None:
    data = path.read_bytes()
    for at in range(len(data)):
        for bit in (1, 32):
            path.write_bytes(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
            with pytest.raises(BadRecord):
                read(path, ABOUT)


def test_a_record_of_any_other_length_is_refused(path: Path) -> None:
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(BadRecord):
            read(path, ABOUT)
    path.write_bytes(data + b"\0")
    with pytest.raises(BadRecord):
        read(path, ABOUT)
    path.unlink()
    with pytest.raises(BadRecord, match="No such file"):
        read(path, ABOUT)


def test_a_checksum_that_is_no_text_is_refused(path: Path) -> None:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    before, after = data[8 : 8 + length].split(b"xxh3:")
    header = before + b"\\ud800xxh3" + after
    payload = data[8 + length :]
    path.write_bytes(len(header).to_bytes(8, "little") + header + payload)
    with pytest.raises(BadRecord, match="checksum differs"):
        read(path, ABOUT)


@pytest.mark.parametrize("field", ABOUT)
def test_a_record_of_something_else_is_refused(field: str, path: Path) -> None:
    with pytest.raises(BadRecord, match=f"{field} is "):
        read(path, {**ABOUT, field: "other"})


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    record = Record(ABOUT, {"a": HostArray("U8", np.zeros(4, np.uint8))})
    (tmp_path / "there").mkdir()
    with pytest.raises(OSError, match="directory"):
        write(tmp_path / "there", record, temporary=tmp_path / "a.tmp")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
