# SPDX-License-Identifier: Apache-2.0
"""Which servers run, told by a lock that ends with its process."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from splashpy.cli.servers import answers
from splashpy.server.registry import RunningServer, announce, running

SERVER = RunningServer(
    port=8000, host="127.0.0.1", pid=os.getpid(), model="demo", version="1", started=0.0
)


def test_a_server_is_found_until_it_withdraws(tmp_path: Path) -> None:
    announced = announce(tmp_path, SERVER)

    assert running(tmp_path) == [SERVER]
    assert announced.path.stat().st_mode & 0o077 == 0
    announced.withdraw()
    assert running(tmp_path) == []
    assert not announced.path.exists()


def test_a_number_that_is_another_process_now_is_no_server(tmp_path: Path) -> None:
    """The file of a killed server names a process that may be anybody's later."""
    file = tmp_path / "run" / "serve-8000.json"
    file.parent.mkdir()
    file.write_text(json.dumps(asdict(SERVER)))

    assert running(tmp_path) == []
    assert not file.exists()


def test_a_server_of_another_version_keeps_its_file(tmp_path: Path) -> None:
    announced = announce(tmp_path, SERVER)
    announced.path.write_text(json.dumps({**asdict(SERVER), "more": 1}))

    assert running(tmp_path) == []
    assert announced.path.exists()
    announced.withdraw()


@pytest.mark.parametrize(
    ("state", "ready", "usable"),
    [
        ("ready", {"ev": "ready"}, True),
        ("unloaded", {"ev": "ready"}, True),
        ("loading", None, False),
        ("draining", {"ev": "ready"}, False),
    ],
)
def test_a_server_that_unloaded_its_model_still_answers(
    state: str, ready: dict[str, str] | None, *, usable: bool
) -> None:
    assert answers({"state": state, "ready": ready}) is usable
