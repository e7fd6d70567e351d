# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mlx.core as mx
import pytest

from splashpy.training.files import save_atomic, write_atomic


@contextmanager
def files_end_at(num_bytes: int) -> Iterator[None]:
    """A disk that takes no more than this of one file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_without_room_is_said_and_leaves_what_was_there(tmp_path: Path) -> None:
    weights, text = tmp_path / "model.safetensors", tmp_path / "notes.txt"
    save_atomic(weights, {"a": mx.ones(4)})
    write_atomic(text, "old")
    before = weights.read_bytes()
    large = {"a": mx.ones(1 << 20)}
    mx.eval(large)

    for write in (
        lambda: save_atomic(weights, large),
        lambda: write_atomic(text, "new" * (1 << 20)),
    ):
        with files_end_at(1 << 20), pytest.raises(OSError, match="large") as failure:
            write()
        assert failure.value.errno == errno.EFBIG

    assert weights.read_bytes() == before
    assert text.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "model.safetensors",
        "notes.txt",
    ]


def test_a_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as failure:
        save_atomic(tmp_path / "gone" / "model.safetensors", {"a": mx.ones(4)})
    assert failure.value.filename == str(
        tmp_path / "gone" / ".model.unfinished.safetensors"
    )
