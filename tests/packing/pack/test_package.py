# SPDX-License-Identifier: Apache-2.0
"""What a package holds, and that plain mlx-lm loads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
import tiny
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model
from packing.pack.making import content, local, run

from splashpy.package.integrity import check_files
from splashpy.package.manifest import Manifest
from splashpy.package.model_directory import ModelDirectory
from splashpy.package.progress import never, silent
from splashpy.package.weights.safetensors_file import Checkpoint
from splashpy.packing.build import hashed_files
from splashpy.packing.pack import PackWish, plan_pack
from splashpy.packing.quantize import quantize
from splashpy.packing.quantize_on_demand import Packing
from splashpy.packing.target_plan import PackingWish


def test_a_package_says_what_it_was_made_of(
    target: Path, drafter: Path, tmp_path: Path
) -> None:
    packed = run(target, drafter, tmp_path / "package", draft_bits=4)

    manifest = ModelDirectory.open(tmp_path / "package").manifest
    assert manifest is not None
    assert manifest == packed.manifest
    check_files(tmp_path / "package", manifest, full=True)
    assert manifest.name == "target"
    assert manifest.target.source.kind == "local"
    assert {"config.json", "model.safetensors"} <= {
        file.path for file in manifest.target.source.files
    }
    assert manifest.target.license.spdx == "Apache-2.0"
    assert manifest.target.quantization is not None
    assert manifest.target.quantization.bits == 4
    assert manifest.target.quantization.group_size == 64
    assert manifest.draft is not None
    assert manifest.draft.license.spdx == "MIT"
    assert manifest.draft.trained_for[0] == "owner/target"
    assert manifest.draft.quantization is not None
    assert manifest.tokens.mask_token_id == 259
    assert (manifest.sampling.temperature, manifest.sampling.top_k) == (0.7, 20)
    assert manifest.created_at == ""


def test_plain_mlx_lm_loads_the_target_with_the_quantized_values(
    target: Path, tmp_path: Path
) -> None:
    run(target, None, tmp_path / "package", packing=PackingWish(bits=8, group_size=32))

    loaded: Any = load_model(tmp_path / "package" / "target")
    model, config = loaded
    unpacked = Checkpoint.open(target)
    name = "model.layers.1.self_attn.q_proj"
    packed = quantize(unpacked[f"{name}.weight"], group_size=32, bits=8, name=name)
    layer = model.layers[1].self_attn.q_proj
    assert np.array_equal(np.array(layer.weight), packed.weight.data)
    assert np.array_equal(np.array(layer.scales), packed.scales.data)
    assert (layer.bits, layer.group_size) == (8, 32)
    assert config["quantization"]["bits"] == 8


def test_modules_can_be_packed_each_in_its_own_way(
    target: Path, tmp_path: Path
) -> None:
    wish = PackingWish(
        overrides=(
            ("*.embed_tokens", Packing(8, 32)),
            ("*.layers.0.*", None),
            ("*.layers.0.mlp.up_proj", Packing(8, 64)),
        )
    )
    packed = run(target, None, tmp_path / "package", packing=wish)

    quantization = packed.manifest.target.quantization
    assert quantization is not None
    assert quantization.overrides["model.embed_tokens"].bits == 8
    assert quantization.overrides["model.embed_tokens"].group_size == 32
    assert quantization.overrides["model.layers.0.mlp.up_proj"].bits == 8
    weights = Checkpoint.open(tmp_path / "package" / "target")
    assert weights["model.layers.0.self_attn.q_proj.weight"].dtype == "F32"
    loaded: Any = load_model(tmp_path / "package" / "target")
    model = loaded[0]
    assert model.layers[1].self_attn.q_proj.bits == 4
    assert model(mx.array([[1, 2]])).shape == (1, 2, tiny.VOCAB)


def test_packing_twice_gives_the_same_bytes(
    target: Path, drafter: Path, tmp_path: Path
) -> None:
    run(target, drafter, tmp_path / "one", draft_bits=8)
    run(target, drafter, tmp_path / "two", draft_bits=8)

    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_rotary_settings_are_packed_where_plain_mlx_lm_finds_them(
    target: Path, tmp_path: Path
) -> None:
    config = json.loads((target / "config.json").read_text())
    del config["rope_theta"]
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6}
    (target / "config.json").write_text(json.dumps(config))

    run(target, None, tmp_path / "package")

    packed = json.loads((tmp_path / "package" / "target" / "config.json").read_text())
    assert packed["rope_theta"] == 1e6
    assert packed["rope_parameters"] == config["rope_parameters"]


def test_the_self_check_counts_what_a_cycle_commits(
    target: Path, drafter: Path, tmp_path: Path
) -> None:
    packed = run(target, drafter, tmp_path / "package", check=True)

    assert packed.check is not None
    assert packed.check.first_difference is None
    assert packed.check.tokens == 64
    assert packed.check.acceptance_length is not None
    assert 1 <= packed.check.acceptance_length <= 8
    manifest = Manifest.open(tmp_path / "package")
    assert manifest.check is not None
    assert len(manifest.check.token_ids) == 16
    assert manifest.pairing is not None
    assert manifest.pairing.acceptance is not None
    assert manifest.pairing.acceptance["cycles"] == packed.check.cycles


def test_weights_are_cut_into_files_of_a_limited_size(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(target, None, tmp_path / "whole")
    plan = plan_pack(
        PackWish(target=local(target), draft=None, output=tmp_path / "x", check=False)
    )
    folder = tmp_path / "cut"
    folder.mkdir()

    plan.target.plan.shards.write(folder, silent, never, limit=20_000)

    files = sorted(path.name for path in folder.glob("*.safetensors"))
    assert len(files) > 3
    assert files[0] == f"model-00001-of-{len(files):05}.safetensors"
    cut, whole = Checkpoint.open(folder), Checkpoint.open(tmp_path / "whole" / "target")
    assert set(cut) == set(whole)
    assert all(cut[name].data.tobytes() == whole[name].data.tobytes() for name in cut)


@pytest.mark.parametrize(
    ("mode", "group", "bits"), [("mxfp4", 32, 4), ("mxfp8", 32, 8)]
)
def test_other_modes_are_recorded_and_kept(
    target: Path, tmp_path: Path, mode: str, group: int, bits: int
) -> None:
    model, config = load_model(target)
    nn.quantize(model, group_size=group, bits=bits, mode=mode)
    mx.save_safetensors(
        str(target / "model.safetensors"), dict(tree_flatten(model.parameters()))
    )
    config["quantization"] = {"group_size": group, "bits": bits, "mode": mode}
    (target / "config.json").write_text(json.dumps(config))

    packed = run(target, None, tmp_path / "package")

    quantization = packed.manifest.target.quantization
    assert quantization is not None
    assert (quantization.mode, quantization.group_size) == (mode, group)
    again, _ = load_model(tmp_path / "package" / "target")
    assert mx.array_equal(again(mx.array([[1, 2]])), model(mx.array([[1, 2]])))


def test_the_frequent_tokens_of_a_drafter_come_along(
    target: Path, drafter: Path, tmp_path: Path
) -> None:
    tokens = json.dumps({"token_ids": list(range(128))})
    (drafter / "frequent_tokens.json").write_text(tokens)

    run(target, drafter, tmp_path / "package")

    assert (tmp_path / "package/draft/frequent_tokens.json").read_text() == tokens


def test_odd_files_beside_the_weights_leave_a_package_that_opens(
    target: Path, tmp_path: Path
) -> None:
    """They are listed as what it was made from: empty, or of any name."""
    (target / "empty.txt").touch()
    (target / "notes [old]: *.json").write_text("{}")

    packed = run(target, None, tmp_path / "package")

    assert Manifest.open(tmp_path / "package") == packed.manifest
    sizes = {file.path: file.size for file in packed.manifest.target.source.files}
    assert sizes["empty.txt"] == 0
    assert sizes["notes [old]: *.json"] == 2


def test_a_directory_above_has_a_name(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (target / "below").mkdir()
    monkeypatch.chdir(target / "below")

    assert local(Path("..")).name == "target"


def test_what_a_file_browser_leaves_is_not_listed(tmp_path: Path) -> None:
    for name in ("config.json", ".DS_Store", "splashpy.json"):
        (tmp_path / name).write_text("{}")

    listed = hashed_files(tmp_path, silent, never)

    assert [entry.path for entry in listed] == ["config.json"]
