# SPDX-License-Identifier: Apache-2.0
"""The demo's own file and drafter, packed by command and run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

QUESTION = ("-p", "Name three primary colours.", "--temp", "0", "--max-tokens", "16")
REFERENCE = {"SPLASHPY_BLAS": "reference"}

Pack = Callable[..., Path]


@pytest.fixture
def pack(
    splashpy: Callable[..., Any], demo: Path, demo_gguf: Path, tmp_path: Path
) -> Pack:
    """Pack the GGUF file of the demo's target with the demo's drafter, by a name."""

    def run(name: str, *words: str) -> Path:
        parts = str(demo_gguf), str(demo / "draft")
        output = tmp_path / name
        splashpy("pack", *parts, "-o", str(output), *words, check=True)
        return output

    return run


def test_a_packed_pair_is_checked_and_writes_what_the_demo_writes(
    pack: Pack, splashpy: Callable[..., Any], answer: Callable[..., dict[str, Any]]
) -> None:
    package = pack("pair")

    manifest = json.loads((package / "splashpy.json").read_text())
    assert manifest["pairing"]["acceptance"]["acceptance_length"] > 1.2
    assert len(manifest["check"]["token_ids"]) == 16
    words = ("run", str(package), *QUESTION, "--json")
    packed = json.loads(splashpy(*words, check=True, variables=REFERENCE).stdout)
    demo = answer(*QUESTION, variables=REFERENCE)
    assert packed["text"] == demo["text"] != ""
    assert packed["usage"] == demo["usage"]


def test_packing_twice_gives_the_same_bytes_and_a_flipped_one_is_found(
    pack: Pack, splashpy: Callable[..., Any]
) -> None:
    first, second = pack("first", "--no-check"), pack("second", "--no-check")

    listed, again = (folder / "splashpy.json" for folder in (first, second))
    assert listed.read_bytes() == again.read_bytes()
    check = ("verify", str(first), "--files", "--full")
    assert splashpy(*check).returncode == 0
    weights = first / "draft" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    done = splashpy(*check)
    assert done.returncode == 5
    assert "draft/model.safetensors" in done.stderr
