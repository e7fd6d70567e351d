# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest
import tiny
from mlx.utils import tree_map

from splashpy.host.model import Speech
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.target import MlxLmTarget
from splashpy.package.model_directory import ModelDirectory
from splashpy.training.continuation import continue_texts
from splashpy.training.examples import Example, digest
from splashpy.training.init import Geometry, Student, new_student
from splashpy.verification.sampling import SamplingParams


@pytest.fixture
def target() -> MlxLmTarget:
    return tiny.target()


@pytest.fixture
def teachable() -> MlxLmTarget:
    """A target whose layers say little: the last tokens nearly decide the next one."""
    target = tiny.target()
    for layer in target._model.model.layers:
        weights = layer.parameters()
        layer.update(tree_map(lambda a: a * 0.1 if a.ndim > 1 else a, weights))
    mx.eval(target._model.parameters())
    return target


@pytest.fixture
def network() -> DFlashNetwork:
    return tiny.drafter_network()


@pytest.fixture
def write_texts() -> Callable[..., list[Example]]:
    """Random prompts and what a target greedily makes of them."""

    def write(
        target: MlxLmTarget, count: int, *, prompt: int = 6, answer: int = 30
    ) -> list[Example]:
        key = mx.random.key(1)
        prompts = mx.random.randint(0, 256, (count, prompt), key=key).tolist()
        answers = continue_texts(
            target,
            prompts,
            limit=answer,
            stops=frozenset(),
            sampling=SamplingParams(),
            key=key,
        )
        return [
            Example((*ids, *answer), prompt, digest(str(ids)))
            for ids, answer in zip(prompts, answers, strict=True)
        ]

    return write


@pytest.fixture
def begin() -> Callable[[MlxLmTarget], Student]:
    """A new drafter for a tiny target."""

    def begin(target: MlxLmTarget) -> Student:
        geometry = Geometry(
            mask_token_id=259,
            layers=2,
            feature_layers=(0, 2, 3),
            window=64,
            conv_group_size=8,
            selector_rank=8,
            selector_top_k=6,
        )
        return new_student(target, geometry)

    return begin


@pytest.fixture(scope="session")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Speech:
    directory: Path = tiny.write_model(tmp_path_factory.mktemp("model"))
    return Speech.from_directory(ModelDirectory.open(directory), None)
