# SPDX-License-Identifier: Apache-2.0
"""A model's prompts are found again by the same model only."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import tiny

from splashpy.cache.prefix import PrefixCache
from splashpy.engine.generation import generate
from splashpy.engine.loading import Loaded, LoadRequest, load
from splashpy.engine.request import Finished, GenerationRequest, LookedUp
from splashpy.engine.shelf import namespace, open_cache
from splashpy.protocol import LoadOptions
from splashpy.verification.sampling import SamplingParams

PROMPT = tuple(i * 61 % 249 for i in range(400))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tiny.write_model(tmp_path / "target", **tiny.WIDE)


class Shelf:
    """Loads models one after the other over one directory of prompts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.open: list[PrefixCache] = []

    def load(
        self, directory: Path, draft: Path | None = None, **options: Any
    ) -> tuple[Loaded, PrefixCache]:
        self.close()
        request = LoadRequest(
            directory=directory,
            config=json.loads((directory / "config.json").read_text()),
            context_max=512,
            options=LoadOptions(
                cache_dir=str(self.root), cache_disk=1 << 28, **options
            ),
            draft=draft,
            paced=False,
        )
        loaded = load(request, lambda _: None)
        cache = open_cache(request, loaded)
        assert cache is not None
        self.open.append(cache)
        return loaded, cache

    def read(self, loaded: Loaded, cache: PrefixCache) -> tuple[int, bool]:
        """Read the prompt ahead; tokens restored, and whether from disk."""
        request = GenerationRequest(
            id="a",
            token_ids=PROMPT,
            sampling=SamplingParams(),
            seed=1,
            prefill_only=True,
        )
        events = list(
            generate(
                request, loaded.target, loaded.drafter, cache, cancelled=lambda: False
            )
        )
        while cache.write_some():
            pass
        assert cache.settle(30)
        assert isinstance(events[0], LookedUp)
        assert isinstance(events[-1], Finished)
        return events[-1].cached_tokens, events[0].found.tier == "disk"

    def close(self) -> None:
        while self.open:
            self.open.pop().close(30)


@pytest.fixture
def shelf(tmp_path: Path) -> Any:
    found = Shelf(tmp_path / "kv")
    yield found
    found.close()


def test_the_same_model_finds_its_prompts_again(shelf: Shelf, directory: Path) -> None:
    assert shelf.read(*shelf.load(directory)) == (0, False)
    assert shelf.read(*shelf.load(directory)) == (399, True)


def test_rows_of_another_format_are_not_mixed(shelf: Shelf, directory: Path) -> None:
    shelf.read(*shelf.load(directory, kv="bf16"))
    assert shelf.read(*shelf.load(directory, kv="q8")) == (0, False)
    assert shelf.read(*shelf.load(directory, kv="q8")) == (399, True)
    assert shelf.read(*shelf.load(directory, kv="bf16")) == (399, True)


def test_other_weights_of_the_same_name_are_another_model(
    shelf: Shelf, directory: Path
) -> None:
    shelf.read(*shelf.load(directory))
    tiny.write_model(directory, seed=4, **tiny.WIDE)
    assert shelf.read(*shelf.load(directory)) == (0, False)


def test_weights_whose_time_changed_are_read_again(
    shelf: Shelf, directory: Path
) -> None:
    shelf.read(*shelf.load(directory))
    os.utime(directory / "model.safetensors", (1, 1))
    assert shelf.read(*shelf.load(directory)) == (0, False)


def test_a_changed_configuration_is_another_model(
    shelf: Shelf, directory: Path
) -> None:
    shelf.read(*shelf.load(directory))
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "rope_theta": 5e3}))
    assert shelf.read(*shelf.load(directory)) == (0, False)


def test_another_drafter_keeps_the_targets_rows(
    shelf: Shelf, directory: Path, tmp_path: Path
) -> None:
    windows = {"layer_types": ["sliding_attention"] * 2}
    one = tiny.write_drafter(tmp_path / "one", **windows)
    other = tiny.write_drafter(tmp_path / "other", version=1, **windows)
    shelf.read(*shelf.load(directory, one))
    for draft, known in ((one, True), (other, False), (None, False)):
        _, cache = shelf.load(directory, draft)
        taken = cache.take([*PROMPT, 1, 2])
        assert taken.found.resumed == 400
        assert (taken.draft is not None) == known


def test_the_device_is_part_of_the_namespace(directory: Path, shelf: Shelf) -> None:
    loaded, _ = shelf.load(directory)
    request = LoadRequest(
        directory=directory, config={}, context_max=512, options=LoadOptions()
    )
    found = namespace(request, loaded)
    assert "reference" in found.device
    assert found.dtype == "float32"
    assert found.mlx.count(".") == 1


def test_a_second_engine_works_in_memory(
    shelf: Shelf, directory: Path, tmp_path: Path
) -> None:
    shelf.read(*shelf.load(directory))
    other = Shelf(shelf.root)
    try:
        loaded, cache = other.load(directory)
        assert other.read(loaded, cache) == (0, False)
        assert other.read(loaded, cache) == (399, False)
    finally:
        other.close()


def test_no_quota_is_no_directory(shelf: Shelf, directory: Path) -> None:
    request = LoadRequest(
        directory=directory,
        config=json.loads((directory / "config.json").read_text()),
        context_max=512,
        options=LoadOptions(cache_dir=str(shelf.root), cache_disk=0),
    )
    cache = open_cache(request, load(request, lambda _: None))
    assert cache is not None
    assert not shelf.root.exists()
