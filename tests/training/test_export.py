# SPDX-License-Identifier: Apache-2.0
"""The list of frequent tokens on its way from training to drafting."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest
import tiny

from splashpy.errors import ModelKindError
from splashpy.models.dflash2_load import load_drafter
from splashpy.models.target import MlxLmTarget
from splashpy.package.frequent_tokens import FILE_NAME
from splashpy.training.evaluate import evaluate
from splashpy.training.export import export
from splashpy.training.init import Student, load_student

FREQUENT = tuple(range(0, 250, 5))
Begin = Callable[[MlxLmTarget], Student]


def files(directory: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in directory.iterdir()}


def change_a_weight(student: Student) -> None:
    student.network.norm.weight = student.network.norm.weight * 2


def test_a_list_that_is_exported_is_drafted_from(
    teachable: MlxLmTarget, begin: Begin, tmp_path: Path
) -> None:
    export(begin(teachable), tmp_path, frequent_tokens=FREQUENT)
    assert sorted(files(tmp_path)) == ["config.json", FILE_NAME, "model.safetensors"]
    network = load_drafter(tmp_path, teachable.facts)
    assert network.config.frequent_tokens == FREQUENT
    result = evaluate(network, teachable, [[1, 2, 3], [9, 8]], max_tokens=20)
    assert result.sound


def test_without_a_list_none_is_written(
    teachable: MlxLmTarget, begin: Begin, tmp_path: Path
) -> None:
    export(begin(teachable), tmp_path, frequent_tokens=FREQUENT)
    export(begin(teachable), tmp_path)
    assert sorted(files(tmp_path)) == ["config.json", "model.safetensors"]
    assert load_drafter(tmp_path, teachable.facts).config.frequent_tokens is None


def test_an_unchanged_drafter_keeps_its_list_byte_for_byte(
    teachable: MlxLmTarget, begin: Begin, tmp_path: Path
) -> None:
    export(begin(teachable), tmp_path / "origin", frequent_tokens=FREQUENT)
    sidecar = tmp_path / "origin" / FILE_NAME
    sidecar.write_text(sidecar.read_text().replace(", ", " ,\n"))
    export(load_student(tmp_path / "origin", teachable), tmp_path / "copy")
    assert files(tmp_path / "copy") == files(tmp_path / "origin")
    plain = tiny.write_drafter(tmp_path / "plain")
    export(load_student(plain, teachable), tmp_path / "copy")
    assert files(tmp_path / "copy") == files(plain), "a list of another drafter is gone"


def test_a_changed_drafter_keeps_the_list_it_came_with(
    teachable: MlxLmTarget, begin: Begin, tmp_path: Path
) -> None:
    export(begin(teachable), tmp_path / "origin", frequent_tokens=FREQUENT)
    student = load_student(tmp_path / "origin", teachable)
    change_a_weight(student)
    export(student, tmp_path / "changed")
    changed = load_drafter(tmp_path / "changed", teachable.facts)
    assert changed.config.frequent_tokens == FREQUENT


def test_a_new_list_leaves_unchanged_weights_alone(
    teachable: MlxLmTarget, begin: Begin, tmp_path: Path
) -> None:
    export(begin(teachable), tmp_path / "origin", bits=8)
    student = load_student(tmp_path / "origin", teachable)
    export(student, tmp_path / "listed", frequent_tokens=FREQUENT)
    listed = files(tmp_path / "listed")
    assert listed.pop(FILE_NAME)
    assert listed == files(tmp_path / "origin")


def test_a_list_that_could_not_be_loaded_is_not_written(
    teachable: MlxLmTarget, begin: Begin, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="at least 6 tokens, lists 2"):
        export(begin(teachable), tmp_path, frequent_tokens=[3, 4])
    assert not (tmp_path / FILE_NAME).exists()


def test_a_bad_list_is_refused_when_the_drafter_is_loaded(
    teachable: MlxLmTarget, begin: Begin, tmp_path: Path
) -> None:
    export(begin(teachable), tmp_path)
    (tmp_path / FILE_NAME).write_text('{"token_ids": [1, 2, 3, 4, 5, 9999]}')
    with pytest.raises(ModelKindError, match="vocabulary ends at 259"):
        load_drafter(tmp_path, teachable.facts)


def test_shards_of_an_earlier_result_are_not_read_beside_it(
    teachable: MlxLmTarget, begin: Begin, tmp_path: Path
) -> None:
    export(begin(teachable), tmp_path / "origin")
    weights = tmp_path / "origin" / "model.safetensors"
    shard = weights.rename(weights.with_name("model-00001-of-00001.safetensors"))
    index = {"weight_map": {"fc.weight": shard.name}}
    weights.with_suffix(".safetensors.index.json").write_text(json.dumps(index))
    student = load_student(tmp_path / "origin", teachable)
    export(student, tmp_path / "drafter")
    change_a_weight(student)

    export(student, tmp_path / "drafter")

    assert sorted(files(tmp_path / "drafter")) == ["config.json", "model.safetensors"]
    norm = load_drafter(tmp_path / "drafter", teachable.facts).norm.weight
    assert mx.allclose(norm, student.network.norm.weight, rtol=2**-7)
