# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from splashpy.errors import IntegrityError, ModelKindError
from splashpy.package.fields import Fields, read_json


@pytest.mark.parametrize("value", [True, 16.0, "16", [16], -1, None])
def test_an_integer_is_nothing_else(value: Any) -> None:
    with pytest.raises(ModelKindError, match=r"config\.json.*size"):
        Fields({"size": value}, "config.json").integer("size")


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 10**400, True, "1"])
def test_a_number_is_finite(value: Any) -> None:
    with pytest.raises(ModelKindError, match="a finite number"):
        Fields({"temperature": value}, "f").number("temperature")


def test_a_message_names_file_and_dotted_key() -> None:
    fields = Fields({"target": {"license": {}}}, "/models/x/splashpy.json")

    with pytest.raises(ModelKindError) as failure:
        fields.object("target").object("license").text("spdx")

    assert failure.value.message == (
        "/models/x/splashpy.json: key target.license.spdx is missing"
    )


def test_null_and_absent_are_the_same() -> None:
    for data in ({}, {"top_k": None}):
        fields = Fields(data, "f")
        assert fields.number("top_k") is None
        assert not fields.has("top_k")
        assert fields.integer("top_k", default=3) == 3


def test_a_long_value_is_shown_in_part() -> None:
    with pytest.raises(ModelKindError) as failure:
        Fields({"bits": "x" * 5000}, "f").integer("bits")

    assert len(failure.value.message) < 120


def test_an_unknown_key_is_named() -> None:
    fields = Fields({"name": "a", "nmae": "b"}, "recipe.toml")
    fields.text("name")

    with pytest.raises(ModelKindError, match="unknown key nmae"):
        fields.refuse_others()


def test_a_file_that_is_not_json_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"hidden_size": 8', encoding="utf-8")

    with pytest.raises(IntegrityError, match="not JSON"):
        read_json(path)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 100_000])
def test_hostile_bytes_are_an_error_not_a_crash(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)

    with pytest.raises(IntegrityError):
        read_json(path)


@pytest.mark.parametrize("digits", [41, 309, 4000])
def test_a_number_nobody_can_mean_is_no_integer(tmp_path: Path, digits: int) -> None:
    path = tmp_path / "config.json"
    path.write_text(f'{{"hidden_size": {"9" * digits}, "limit": {10**30}}}')

    fields = Fields(read_json(path), "f")

    assert fields.integer("limit") == 10**30  # as published files have it
    with pytest.raises(ModelKindError, match="must be an integer"):
        fields.integer("hidden_size")
    with pytest.raises(ModelKindError, match="must be a finite number"):
        fields.number("hidden_size")


def test_a_pipe_or_a_device_is_not_waited_for(tmp_path: Path) -> None:
    pipe, device = tmp_path / "pipe", tmp_path / "device"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")

    for path in (pipe, device):
        with pytest.raises(ModelKindError, match="not a regular file"):
            read_json(path)
