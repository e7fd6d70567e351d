# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.legs import SETTINGS, leg

from splashpy.bench.leg import Leg
from splashpy.bench.requests import FILE, RequestLog
from splashpy.errors import UsageError


def pair(prompt: str, trial: int = 0) -> list[Leg]:
    return [leg(arm, 10.0, prompt=prompt, trial=trial) for arm in ("draft", "plain")]


def test_what_was_added_is_there_again(tmp_path: Path) -> None:
    log = RequestLog.open(tmp_path, SETTINGS)
    assert log.legs == []
    log.add(pair("0"))
    log.add(pair("1"))
    assert RequestLog.open(tmp_path, SETTINGS).legs == pair("0") + pair("1")


def test_a_cut_line_and_a_lonely_arm_are_left_out(tmp_path: Path) -> None:
    log = RequestLog.open(tmp_path, SETTINGS)
    log.add(pair("0"))
    log.add(pair("1"))
    file = tmp_path / FILE
    file.write_text(file.read_text()[:-40])  # killed while it wrote the last arm

    assert RequestLog.open(tmp_path, SETTINGS).legs == pair("0")
    lines = file.read_text().splitlines()
    assert len(lines) == 1 + 2
    assert all(json.loads(line) for line in lines)


def test_a_run_with_other_settings_is_refused(tmp_path: Path) -> None:
    RequestLog.open(tmp_path, SETTINGS)
    with pytest.raises(UsageError, match="other settings") as raised:
        RequestLog.open(tmp_path, {**SETTINGS, "trials": 5, "max_tokens": 7})
    assert raised.value.why == "trials, max_tokens differ"


@pytest.mark.parametrize("content", ["", "hello\n", '{"schema": "other"}\n', "[1]\n"])
def test_a_file_of_something_else_is_not_touched(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(UsageError, match="not a record of splashpy bench"):
        RequestLog.open(tmp_path, SETTINGS)
    assert (tmp_path / FILE).read_text() == content
