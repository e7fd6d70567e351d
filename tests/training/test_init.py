# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
import tiny

from splashpy.errors import PairError, UsageError
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.dflash2_load import load_drafter
from splashpy.models.dflash2_parse import parse_config
from splashpy.models.target import MlxLmTarget
from splashpy.training.examples import Example
from splashpy.training.export import export
from splashpy.training.init import Geometry, Student, load_student, new_student
from splashpy.training.lessons import Lessons
from splashpy.training.plan import TrainingPlan
from splashpy.training.trainer import Trainer

GEOMETRY = Geometry(mask_token_id=259, layers=2, conv_group_size=8, selector_rank=8)


def files(directory: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in directory.iterdir()}


def test_zero_steps_give_back_the_loaded_drafter_byte_for_byte(
    teachable: MlxLmTarget,
    write_texts: Callable[..., list[Example]],
    tmp_path: Path,
) -> None:
    origin = tiny.write_drafter(tmp_path / "origin")
    student = load_student(origin, teachable)
    lessons = Lessons(teachable, student.network.config.feature_layers)
    trainer = Trainer(
        student,
        teachable,
        write_texts(teachable, 3),
        lessons,
        TrainingPlan(steps=0),
        tmp_path / "run",
    )
    assert trainer.run().finished
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "model.safetensors.index.json").write_text(
        "of another drafter"
    )
    export(student, tmp_path / "copy")
    assert files(tmp_path / "copy") == files(origin)


@pytest.mark.parametrize("bits", [4, 8])
def test_zero_steps_of_a_packed_drafter_keep_its_bits(
    teachable: MlxLmTarget, begin: Callable[..., Student], tmp_path: Path, bits: int
) -> None:
    export(begin(teachable), tmp_path / "packed", bits=bits)
    student = load_student(tmp_path / "packed", teachable)
    export(student, tmp_path / "copy")
    assert files(tmp_path / "copy") == files(tmp_path / "packed")


def test_a_new_drafter_is_read_back_as_it_was(
    teachable: MlxLmTarget, begin: Callable[..., Student], tmp_path: Path
) -> None:
    student = begin(teachable)
    export(student, tmp_path)
    read = load_student(tmp_path, teachable)
    assert read.network.config == student.network.config
    for name, array in student.weights.items():
        rounded = array.astype(mx.bfloat16).astype(mx.float32)
        assert mx.array_equal(read.weights[name], rounded), name


def test_packed_matrices_are_near_and_the_codebooks_are_not_packed(
    teachable: MlxLmTarget, begin: Callable[..., Student], tmp_path: Path
) -> None:
    student = begin(teachable)
    export(student, tmp_path, bits=8)
    stored = mx.load(str(tmp_path / "model.safetensors"))
    assert "layers.0.mlp.up_proj.scales" in stored
    assert "candidate_selector.predecessor_codebook" in stored
    assert json.loads((tmp_path / "config.json").read_text())["quantization"] == {
        "group_size": 64,
        "bits": 8,
    }
    read = load_drafter(tmp_path, teachable.facts)
    up = read.layers[0].mlp.up_proj.weight
    exact = student.network.layers[0].mlp.up_proj.weight
    # Half a step of 8 bits over a group's range, and the bfloat16 of its scale.
    step = (exact.max() - exact.min()).item() / 255
    np.testing.assert_allclose(up, exact, atol=2 * step)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_a_changed_drafter_is_written_in_its_origins_form(
    teachable: MlxLmTarget, tmp_path: Path, dtype: mx.Dtype
) -> None:
    origin = tiny.write_drafter(tmp_path / "origin")
    file = str(origin / "model.safetensors")
    stored = {name: array.astype(dtype) for name, array in mx.load(file).items()}
    mx.eval(stored)
    mx.save_safetensors(file, stored)
    student = load_student(origin, teachable)
    student.network.norm.weight = student.network.norm.weight * 2
    assert student.changed
    export(student, tmp_path / "changed")
    before = mx.load(file)
    after = mx.load(str(tmp_path / "changed" / "model.safetensors"))
    assert before.keys() == after.keys()
    config = [
        json.loads((each / "config.json").read_text())
        for each in (origin, tmp_path / "changed")
    ]
    assert config[0] == config[1]
    for name, array in before.items():
        wanted = array * 2 if name == "norm.weight" else array
        assert after[name].dtype == dtype
        assert mx.array_equal(after[name], wanted), name


def test_layers_begin_as_those_of_the_target(target: MlxLmTarget) -> None:
    student = new_student(
        target, Geometry(**{**fields(GEOMETRY), "source_layers": (3, 1)})
    )
    theirs = target._model.model.layers
    for ours, source in zip(student.network.layers, (3, 1), strict=True):
        for part, name in (("self_attn", "k_proj"), ("mlp", "down_proj")):
            copied = getattr(getattr(ours, part), name).weight
            assert mx.array_equal(
                copied, getattr(getattr(theirs[source], part), name).weight
            )
        assert mx.array_equal(
            ours.input_layernorm.weight, theirs[source].input_layernorm.weight
        )


@pytest.mark.parametrize("family", list(tiny.FAMILIES))
def test_a_drafter_begins_for_every_kind_of_target(family: str) -> None:
    """Sizes may be those of a text model inside; some layers have no attention."""
    student = new_student(tiny.target(family), GEOMETRY)
    config = student.network.config
    assert (config.hidden_size, config.num_target_layers) == (64, 4)
    base = {"qwen3_5_moe": 1e5, "gemma4": 1e6}.get(family, 1e4)
    assert config.rope_theta == base


def test_layers_for_a_hybrid_begin_as_those_that_attend() -> None:
    target = tiny.target("qwen3_5")
    student = new_student(target, GEOMETRY)
    theirs = target._backbone.layers[3].self_attn
    for layer in student.network.layers:
        assert mx.array_equal(layer.self_attn.v_proj.weight, theirs.v_proj.weight)


def fields(geometry: Geometry) -> dict:
    return {name: getattr(geometry, name) for name in Geometry.__slots__}


def test_other_widths_begin_with_new_weights_and_the_seed_decides(
    target: MlxLmTarget,
) -> None:
    wide = Geometry(**{**fields(GEOMETRY), "intermediate_size": 128})
    first, same = new_student(target, wide, 1), new_student(target, wide, 1)
    other = new_student(target, wide, 2)
    name = "layers.0.mlp.up_proj.weight"
    assert first.weights[name].shape == (128, 64)
    assert mx.array_equal(first.weights[name], same.weights[name])
    assert not mx.array_equal(first.weights[name], other.weights[name])
    np.testing.assert_allclose(mx.std(first.weights[name]), 0.02, rtol=0.05)


def test_a_new_drafter_computes_what_version_1_computes(target: MlxLmTarget) -> None:
    student = new_student(target, GEOMETRY)
    plain = {
        name: array
        for name, array in student.weights.items()
        if "_conv." not in name and "candidate_selector" not in name
    }
    raw = student.config | {"architectures": ["DFlashDraftModel"]}
    raw["dflash_config"] = {
        name: value
        for name, value in student.config["dflash_config"].items()
        if not name.startswith(("conv_", "selector_"))
    }
    first = DFlashNetwork(parse_config(raw, "version 1"))
    first.load_weights(list(plain.items()))
    features = mx.random.normal((20, 128), key=mx.random.key(0))
    block = target.embed(mx.array([3] + [259] * 7))
    hidden = []
    for network in (first, student.network):
        context = network.new_context()
        network.extend(context, features)
        hidden.append(network(block, context))
    assert mx.array_equal(*hidden)


def test_a_rotary_pair_side_by_side_becomes_two_halves(target: MlxLmTarget) -> None:
    twisted = tiny.target(rope_traditional=True)
    student = new_student(
        twisted, Geometry(**{**fields(GEOMETRY), "source_layers": (0, 1)})
    )
    theirs = twisted._model.model.layers[0].self_attn
    ours = student.network.layers[0].self_attn
    x = mx.random.normal((1, 5, 64), key=mx.random.key(0))
    split = theirs.k_proj(x).reshape(1, 5, 2, 16).swapaxes(1, 2)
    queries = theirs.q_proj(x).reshape(1, 5, 4, 16).swapaxes(1, 2)
    wanted = theirs.rope(queries)[:, :2] @ theirs.rope(split).swapaxes(-1, -2)
    halves = ours._split(ours.k_proj(x)), ours._split(ours.q_proj(x))
    keys, turned = (ours.rotate(each, mx.array(0)) for each in halves)
    found = turned[:, :2] @ keys.swapaxes(-1, -2)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sources", [(0,), (0, 4), (-1, 0)])
def test_source_layers_the_target_does_not_have_are_refused(
    target: MlxLmTarget, sources: tuple[int, ...]
) -> None:
    with pytest.raises(UsageError, match="source layers"):
        new_student(target, Geometry(**{**fields(GEOMETRY), "source_layers": sources}))


def test_a_drafter_of_another_target_is_refused(tmp_path: Path) -> None:
    origin = tiny.write_drafter(tmp_path / "origin")
    with pytest.raises(PairError):
        load_student(origin, tiny.target(hidden_size=32))


def test_bits_that_do_not_exist_are_refused(
    teachable: MlxLmTarget, begin: Callable[..., Student], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="5-bit"):
        export(begin(teachable), tmp_path, bits=5)
