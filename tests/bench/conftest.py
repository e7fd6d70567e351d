# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny

from splashpy.bench.session import Session
from splashpy.package.model_directory import ModelDirectory
from splashpy.protocol import LoadOptions


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny target and an untrained drafter that fits it."""
    folder = tmp_path_factory.mktemp("pair")
    return tiny.write_model(folder / "target"), tiny.write_drafter(folder / "draft")


@pytest.fixture
def open_session(pair: tuple[Path, Path]) -> Callable[..., Session]:
    def open_pair(**options: Any) -> Session:
        target, draft = pair
        wishes = LoadOptions(**{"draft": str(draft), **options})
        return Session.open(ModelDirectory.open(target), wishes)

    return open_pair
