# SPDX-License-Identifier: Apache-2.0
"""What packages are made of, with a card each."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
from packing.pack.making import CARD


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tiny.write_model(tmp_path / "target", tie_word_embeddings=True)
    (path / "README.md").write_text(CARD.format(license="apache-2.0"))
    (path / "generation_config.json").write_text('{"temperature": 0.7, "top_k": 20}')
    return path


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    path = tiny.write_drafter(tmp_path / "drafter")
    (path / "README.md").write_text(CARD.format(license="mit"))
    return path
