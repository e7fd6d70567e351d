# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
import tiny
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model

from splashpy.errors import (
    IntegrityError,
    ModelKindError,
    PairError,
    RemoteCodeError,
    SplashError,
    UsageError,
)
from splashpy.package.integrity import check_files
from splashpy.package.manifest import Manifest
from splashpy.package.model_directory import ModelDirectory
from splashpy.package.progress import CancelledError, never, silent
from splashpy.package.weights.safetensors_file import Checkpoint
from splashpy.packing import shards
from splashpy.packing.inputs import Input, resolve
from splashpy.packing.pack import Packed, PackWish, pack, plan_pack
from splashpy.packing.quantize import quantize
from splashpy.packing.quantize_on_demand import Packing
from splashpy.packing.target_plan import PackingWish
from splashpy.packing.unpack import unpack
from splashpy.paths import Paths
from splashpy.protocol import LoadProgress

CARD = "---\nlicense: {license}\nbase_model: owner/target\n---\n# Model\n"


def local(path: Path) -> Input:
    return resolve(
        str(path),
        None,
        Paths.under(path.parent / "home"),
        offline=True,
        progress=silent,
        cancelled=never,
    )


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


def run(target: Path, drafter: Path | None, output: Path, **wishes: Any) -> Packed:
    wish = PackWish(
        target=local(target),
        draft=local(drafter) if drafter else None,
        output=output,
        **{"check": False, **wishes},
    )
    return pack(plan_pack(wish))


def content(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


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


@pytest.mark.parametrize("draft_bits", [None, 4])
def test_unpacking_and_packing_again_gives_the_same_bytes(
    target: Path, drafter: Path, tmp_path: Path, draft_bits: int | None
) -> None:
    run(target, drafter, tmp_path / "package", draft_bits=draft_bits, name="pair")

    parts = unpack(local(tmp_path / "package"), tmp_path / "parts")
    assert parts.draft is not None
    run(parts.target, parts.draft, tmp_path / "again")

    assert content(tmp_path / "again") == content(tmp_path / "package")
    run(tmp_path / "again", tmp_path / "again", tmp_path / "third")
    assert content(tmp_path / "third") == content(tmp_path / "package")


def test_what_was_unpacked_is_an_ordinary_model(
    target: Path, drafter: Path, tmp_path: Path
) -> None:
    run(target, drafter, tmp_path / "package")

    parts = unpack(local(tmp_path / "package"), tmp_path / "parts")

    assert ModelDirectory.open(parts.target).kind == "mlx"
    prompt = mx.array([[1, 2, 3]])
    whole, _ = load_model(tmp_path / "package" / "target")
    apart, _ = load_model(parts.target)
    assert mx.array_equal(whole(prompt), apart(prompt))


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


def test_a_part_that_was_changed_loses_its_origin(target: Path, tmp_path: Path) -> None:
    run(target, None, tmp_path / "package")
    parts = unpack(local(tmp_path / "package"), tmp_path / "parts")
    config = json.loads((parts.target / "config.json").read_text())
    config["rope_theta"] = 20000.0
    (parts.target / "config.json").write_text(json.dumps(config))

    before = Manifest.open(tmp_path / "package").target.source
    after = run(parts.target, None, tmp_path / "again").manifest.target.source

    assert after.revision != before.revision


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


def test_an_interrupted_call_goes_on_where_it_stopped(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards.Shards.write, "__defaults__", (20_000,))
    run(target, None, tmp_path / "whole")
    wish = PackWish(
        target=local(target), draft=None, output=tmp_path / "package", check=False
    )
    steps: list[LoadProgress] = []
    plan = plan_pack(wish)
    half = plan.target.plan.shards.num_bytes // 2

    with pytest.raises(CancelledError):
        pack(plan, steps.append, lambda: bool(steps) and steps[-1].done > half)
    finished = {
        path: path.stat().st_ino
        for path in (tmp_path / "package.partial").rglob("*.safetensors")
    }
    assert len(finished) >= 2
    assert not (tmp_path / "package").exists()
    pack(plan_pack(wish))

    assert content(tmp_path / "package") == content(tmp_path / "whole")
    kept = {p.stat().st_ino for p in (tmp_path / "package").rglob("*.safetensors")}
    assert set(finished.values()) <= kept
    assert not list(tmp_path.glob("*.partial"))
    assert not list(tmp_path.glob(".package*"))


def test_what_another_call_left_is_not_taken_over(target: Path, tmp_path: Path) -> None:
    wish = PackWish(
        target=local(target), draft=None, output=tmp_path / "package", check=False
    )
    with pytest.raises(CancelledError):
        pack(plan_pack(wish), cancelled=lambda: True)
    (tmp_path / "package.partial" / "target" / "model.safetensors").write_bytes(b"old")

    changed = replace(wish, packing=PackingWish(bits=8))
    pack(plan_pack(changed))

    assert ModelDirectory.open(tmp_path / "package").kind == "native"


def test_a_package_that_is_there_is_replaced_only_when_asked(
    target: Path, tmp_path: Path
) -> None:
    run(target, None, tmp_path / "package")

    with pytest.raises(UsageError, match="is there already"):
        run(target, None, tmp_path / "package")

    run(target, None, tmp_path / "package", force=True, name="new")
    assert Manifest.open(tmp_path / "package").name == "new"


def test_a_directory_of_other_files_is_never_replaced(
    target: Path, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    run(target, None, tmp_path / "package")

    with pytest.raises(UsageError, match="it is no package"):
        run(target, None, tmp_path / "home", force=True)
    with pytest.raises(UsageError, match="it is no package"):
        unpack(local(tmp_path / "package"), tmp_path / "home", force=True)

    assert (tmp_path / "home" / "letter.txt").read_text() == "dear"


def test_what_a_killed_call_left_does_not_come_along(
    target: Path, tmp_path: Path
) -> None:
    wish = PackWish(
        target=local(target), draft=None, output=tmp_path / "package", check=False
    )
    with pytest.raises(CancelledError):
        pack(plan_pack(wish), cancelled=lambda: True)
    half = tmp_path / "package.partial" / "target" / ".model.safetensors.part"
    half.write_bytes(b"half")

    pack(plan_pack(wish))

    assert not [name for name in content(tmp_path / "package") if ".part" in name]


@pytest.mark.parametrize("license_id", ["cc-by-nc-nd-4.0", "CC-BY-ND-4.0"])
def test_terms_that_forbid_changed_copies_are_kept(
    target: Path, drafter: Path, tmp_path: Path, license_id: str
) -> None:
    (drafter / "README.md").write_text(CARD.format(license=license_id))

    with pytest.raises(UsageError, match=license_id.upper()) as failure:
        run(target, drafter, tmp_path / "package", draft_bits=4)
    assert any("--license-ok" in fix for fix in failure.value.fix)
    assert not (tmp_path / "package").exists()

    run(target, drafter, tmp_path / "copy")  # as it is: no changed copy
    packed = run(
        *(target, drafter, tmp_path / "own"), draft_bits=4, accepted=(license_id,)
    )
    assert packed.manifest.draft is not None
    assert packed.manifest.draft.license.redistribution == "forbidden"
    assert any("draft" in note for note in packed.notes)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_size": 128}, "hidden_size is 128"),
        (
            {"vocab_size": 200, "dflash_config": {"mask_token_id": 199}},
            "vocab_size is 200",
        ),
        ({"num_target_layers": 6}, "made for 6 target"),
        ({"dflash_config": {"target_layer_ids": [0, 4]}}, r"target_layer_ids.*4"),
        ({"dflash_config": {"mask_token_id": 260}}, "mask_token_id is 260"),
    ],
)
def test_a_drafter_of_another_target_is_refused_with_the_numbers(
    target: Path, drafter: Path, tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    config = tiny.drafter_config()
    flash = change.get("dflash_config", {})
    config = {**config, **change, "dflash_config": {**config["dflash_config"], **flash}}
    (drafter / "config.json").write_text(json.dumps(config))

    with pytest.raises((PairError, ModelKindError), match=named):
        run(target, drafter, tmp_path / "package")


@pytest.mark.parametrize("key", ["selector_top_k", "conv_group_size"])
def test_half_a_pair_of_keys_is_refused(
    target: Path, drafter: Path, tmp_path: Path, key: str
) -> None:
    config = tiny.drafter_config()
    del config["dflash_config"][key]
    (drafter / "config.json").write_text(json.dumps(config))

    with pytest.raises(SplashError, match=key.partition("_")[0]):
        run(target, drafter, tmp_path / "package")


def test_code_of_a_checkpoint_is_never_run(target: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    (target / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "model_file": "evil.py"}))

    with pytest.raises(RemoteCodeError, match="model_file"):
        run(target, None, tmp_path / "package")

    assert not marker.exists()


def test_python_beside_the_weights_does_not_come_along(
    target: Path, tmp_path: Path
) -> None:
    (target / "helper.py").write_text("raise SystemExit\n")
    (target / "model.pt").write_bytes(b"pickle")

    run(target, None, tmp_path / "package")

    assert not [p for p in content(tmp_path / "package") if p.endswith((".py", ".pt"))]


def test_a_target_that_is_packed_stays_as_it_is(target: Path, tmp_path: Path) -> None:
    run(target, None, tmp_path / "package")

    with pytest.raises(UsageError, match="packed already: 4 bits in groups of 64"):
        run(tmp_path / "package", None, tmp_path / "again", packing=PackingWish(bits=8))


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


@pytest.mark.parametrize("where", ["target", "drafter"])
def test_a_shard_that_did_not_arrive_is_named(
    target: Path, drafter: Path, tmp_path: Path, where: str
) -> None:
    folder = tmp_path / where
    index = {"weight_map": {"x": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(IntegrityError, match="incomplete download") as failure:
        run(target, drafter, tmp_path / "package")

    assert "model-00002-of-00002.safetensors" in failure.value.why


def test_a_pattern_that_matches_nothing_is_a_mistake(
    target: Path, tmp_path: Path
) -> None:
    wish = PackingWish(overrides=(("*.lm_haed", Packing(8, 64)),))

    with pytest.raises(UsageError, match="lm_haed"):
        run(target, None, tmp_path / "package", packing=wish)


def test_the_frequent_tokens_of_a_drafter_come_along(
    target: Path, drafter: Path, tmp_path: Path
) -> None:
    tokens = json.dumps({"token_ids": list(range(128))})
    (drafter / "frequent_tokens.json").write_text(tokens)

    run(target, drafter, tmp_path / "package")

    assert (tmp_path / "package/draft/frequent_tokens.json").read_text() == tokens


def test_a_damaged_package_does_not_come_apart(target: Path, tmp_path: Path) -> None:
    run(target, None, tmp_path / "package")
    path = tmp_path / "package" / "target" / "model.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)

    with pytest.raises(IntegrityError, match=r"model\.safetensors"):
        unpack(local(tmp_path / "package"), tmp_path / "parts")

    assert not (tmp_path / "parts").exists()
    shutil.rmtree(tmp_path / "package")
