# SPDX-License-Identifier: Apache-2.0
"""A clean, repeatable world for every test.

- ``SPLASHPY_HOME`` is a fresh directory, so no test reads or writes a person's models
  or settings; other variables that change what splashpy does are removed.
- Random generators start from fixed seeds; hypothesis is derandomized.
- mlx uses its reference BLAS, where a block of rows equals one-row decoding bit for
  bit. ``SPLASHPY_BLAS=auto`` in the environment overrides it.
- Tests marked ``metal`` need a Metal GPU. Everywhere else MLX computes alone: racing
  kernels at every load would take longer than the tests.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import platformdirs
import pytest
from huggingface_hub import constants
from hypothesis import settings
from package.hub_server import HubServer, point_at

from splashpy import blas
from splashpy.errors import NetworkError

# The BLAS is chosen before anything imports mlx.core.
os.environ.setdefault("SPLASHPY_BLAS", "reference")
blas.prepare()

import mlx.core as mx  # noqa: E402

from splashpy.drafting.drafter import Proposal  # noqa: E402
from splashpy.engine import cycle, prefill  # noqa: E402
from splashpy.engine.sequence import Sequence  # noqa: E402
from splashpy.package.progress import never, silent  # noqa: E402
from splashpy.packing.build import build  # noqa: E402
from splashpy.packing.fetch import Supply  # noqa: E402
from splashpy.packing.recipe import find_recipe  # noqa: E402

IN_CI = "CI" in os.environ  # read before the environment of tests is cleaned

settings.register_profile("splashpy", derandomize=True, deadline=None)
settings.load_profile("splashpy")

KEPT = {"SPLASHPY_BLAS"}
FOREIGN = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "CI")
"""Variables of other programs that change how splashpy looks or where it looks."""


def _reads_a_hub(name: str) -> bool:
    return name.startswith("HF_") or name == "TRANSFORMERS_OFFLINE"


@pytest.fixture(autouse=True)
def clean_environment(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """Put splashpy's files below a fresh directory, and return it."""
    for name in list(os.environ):
        ours = name.startswith("SPLASHPY_") and name not in KEPT
        if ours or name in FOREIGN or _reads_a_hub(name):
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("SPLASHPY_HOME", str(home))
    monkeypatch.setenv("HF_HOME", str(home / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("SPLASHPY_KERNELS", "off")
    return home


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """Start Python's and numpy's generators from the same place in every test."""
    random.seed(0)
    np.random.seed(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, with the reason."""
    if mx.metal.is_available():
        return
    for item in items:
        if item.get_closest_marker("metal"):
            item.add_marker(pytest.mark.skip(reason="needs a Metal GPU"))


@pytest.fixture(scope="session")
def demo_cache() -> Path:
    """Kept between test runs: the demo's source, and packages by recipe digest."""
    return Path(platformdirs.user_cache_dir("splashpy-tests", appauthor=False))


@pytest.fixture(scope="session")
def demo(demo_cache: Path) -> Path:
    """The real demo package, built once for all test runs."""
    recipe = find_recipe("demo")
    destination = demo_cache / recipe.digest[:12] / recipe.name
    try:
        return build(recipe, destination, Supply(demo_cache))
    except NetworkError as error:
        if IN_CI:
            raise
        pytest.skip(f"the demo's weights cannot be fetched: {error.message}")


@pytest.fixture(scope="session")
def demo_gguf(demo: Path, demo_cache: Path) -> Path:
    """The file the demo package was made from."""
    return Supply(demo_cache).fetch(find_recipe("demo").sources[0], silent, never)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A model hub on this computer, and an empty cache for what comes from it."""
    with HubServer() as server:
        point_at(monkeypatch, server.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield server


@pytest.fixture
def broken_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """An acceptance rule that keeps the first drafted token unseen."""
    sound = cycle.decide

    def decide(
        sequence: Sequence, logits: mx.array, proposal: Proposal, position: int
    ) -> mx.array:
        verdict = sound(sequence, logits, proposal, position)
        if not len(proposal):
            return verdict
        kept = mx.maximum(verdict[0:1], 1)
        count = mx.maximum(verdict[2:3], 2)
        head = [kept, verdict[1:2], count, proposal.token_ids[:1]]
        return mx.concatenate([*head, verdict[4:]])

    monkeypatch.setattr(cycle, "decide", decide)
    monkeypatch.setattr("splashpy.bench.distribution.decide", decide)
    assert prefill.decide is sound
