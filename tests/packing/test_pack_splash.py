# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
import splash_kit
from mlx_lm.utils import load_model
from splash_kit import NAMES, TinySplash, write_tiny_splash

from splashpy.errors import IntegrityError, ModelKindError, PairError, UsageError
from splashpy.models.arrays import to_mlx
from splashpy.models.dflash2_load import load_drafter
from splashpy.models.target import TargetFacts
from splashpy.package.fields import read_json
from splashpy.package.manifest import Manifest
from splashpy.package.model_directory import ModelDirectory
from splashpy.package.progress import CancelledError, never, silent
from splashpy.package.splash.package import SplashPackage
from splashpy.packing.gather import Work
from splashpy.packing.inputs import Input, resolve
from splashpy.packing.pack import PackPlan, PackWish, pack, plan_pack
from splashpy.packing.pack_splash import pack_splash
from splashpy.packing.target_files import write_safetensors
from splashpy.packing.unpack import Unpacked, unpack
from splashpy.paths import Paths
from splashpy.protocol import LoadProgress


@pytest.fixture(scope="module", params=NAMES)
def splash(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> TinySplash:
    return write_tiny_splash(tmp_path_factory.mktemp("splash") / "it", request.param)


def local(path: Path) -> Input:
    return resolve(
        str(path),
        None,
        Paths.under(path.parent / "home"),
        offline=True,
        progress=silent,
        cancelled=never,
    )


def unpacked(splash: TinySplash, output: Path) -> Unpacked:
    work = Work(silent, never, splash.table)
    return unpack(local(splash.path), output, work=work)


def planned(
    splash: TinySplash, target: Path, draft: Path | None, output: Path, **wishes: Any
) -> PackPlan:
    wish = PackWish(
        target=local(target),
        draft=local(draft) if draft else None,
        output=output,
        formats=splash.table,
        check=False,
        **wishes,
    )
    return plan_pack(wish)


def content(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_a_package_comes_apart_into_what_mlx_lm_loads(
    splash: TinySplash, tmp_path: Path
) -> None:
    parts = unpacked(splash, tmp_path / "parts")

    model, _ = load_model(parts.target)
    prompt = mx.array([[7, 300, 2, 11]])
    assert mx.array_equal(model(prompt), splash.model(prompt))
    directory = ModelDirectory.open(parts.target)
    assert directory.vocab_size == splash_kit.VOCAB
    assert directory.eos_token_ids() == (0, 1, 258)


def test_the_drafter_of_a_package_loads_as_any_other(
    splash: TinySplash, tmp_path: Path
) -> None:
    parts = unpacked(splash, tmp_path / "parts")
    assert parts.draft is not None

    facts = TargetFacts(
        model_type="qwen3_5",
        vocab_size=splash_kit.VOCAB,
        hidden_size=128,
        num_layers=4,
        context_max=512,
    )
    network = load_drafter(parts.draft, facts, dtype=mx.bfloat16)

    assert network.config.quantization is not None
    assert network.config.feature_layers == splash.row.draft.feature_layers
    norm = network.norm.weight
    assert mx.array_equal(
        norm.view(mx.uint16), mx.array(splash.draft["norm.weight"].data)
    )


def test_what_came_apart_goes_together_byte_for_byte(
    splash: TinySplash, tmp_path: Path
) -> None:
    parts = unpacked(splash, tmp_path / "parts")
    plan = planned(splash, parts.target, parts.draft, tmp_path / "again")

    pack_splash(plan, tmp_path / "parts" / "vision" / "model.bin")

    assert content(tmp_path / "again") == content(splash.path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again", "parts"]


def test_a_package_is_copied_without_a_detour(
    splash: TinySplash, tmp_path: Path
) -> None:
    plan = planned(splash, splash.path, splash.path, tmp_path / "again")

    pack_splash(plan, None)

    assert content(tmp_path / "again") == content(splash.path)


def test_a_native_package_keeps_what_the_way_back_needs(
    splash: TinySplash, tmp_path: Path
) -> None:
    native, back = tmp_path / "native", tmp_path / "back"
    pack(planned(splash, splash.path, splash.path, native))

    manifest = ModelDirectory.open(native).manifest
    assert manifest is not None
    assert manifest.splash is not None
    assert manifest.target.cache_kinds == ("gdn", "gdn", "gdn", "kv")
    model, _ = load_model(native / "target")
    prompt = mx.array([[1, 2, 3]])
    assert mx.array_equal(model(prompt), splash.model(prompt))

    plan = planned(splash, native, native, back)
    pack_splash(plan, splash.path / "vision" / "model.bin")
    assert content(back) == content(splash.path)


def test_native_and_unpacked_packages_are_the_same_bytes(
    splash: TinySplash, tmp_path: Path
) -> None:
    pack(planned(splash, splash.path, splash.path, tmp_path / "native"))
    parts = unpack(local(tmp_path / "native"), tmp_path / "parts")
    pack(planned(splash, parts.target, parts.draft, tmp_path / "again"))

    assert content(tmp_path / "again") == content(tmp_path / "native")


def test_an_interrupted_call_goes_on_where_it_stopped(
    splash: TinySplash, tmp_path: Path
) -> None:
    wish = splash, splash.path, splash.path, tmp_path / "again"
    steps: list[LoadProgress] = []

    def stop() -> bool:
        return bool(steps) and steps[-1].item == "target/layer-2.bin"

    with pytest.raises(CancelledError):
        pack_splash(planned(*wish), None, steps.append, stop)
    partial = tmp_path / "again.partial"
    finished = {path.name: path.stat().st_ino for path in partial.rglob("*.bin")}
    assert len(finished) >= 3
    assert not list(partial.rglob("*.part"))
    assert not (tmp_path / "again").exists()
    pack_splash(planned(*wish), None)

    assert content(tmp_path / "again") == content(splash.path)
    for name, inode in finished.items():
        assert (tmp_path / "again" / "target" / name).stat().st_ino == inode
    assert [path.name for path in tmp_path.iterdir()] == ["again"]


def test_what_was_made_for_another_tower_is_not_taken_over(
    splash: TinySplash, tmp_path: Path
) -> None:
    parts = unpacked(splash, tmp_path / "parts")
    wish = splash, parts.target, parts.draft, tmp_path / "again"
    tower = tmp_path / "parts" / "vision" / "model.bin"
    steps: list[LoadProgress] = []
    with pytest.raises(CancelledError):
        pack_splash(planned(*wish), tower, steps.append, lambda: len(steps) > 2)
    (tmp_path / "again.partial" / "target" / "layer-0.bin").write_bytes(b"old")

    pack_splash(planned(*wish), splash.path / "vision" / "model.bin")

    assert content(tmp_path / "again") == content(splash.path)


def test_an_mlx_repository_and_its_drafter_become_a_package(
    splash: TinySplash, tmp_path: Path
) -> None:
    """What nobody came with: the decays are computed, the manifest is written."""
    target, draft = tmp_path / "target", tmp_path / "draft"
    write_repository(splash, target)
    write_draft(splash, draft)
    plan = planned(splash, target, draft, tmp_path / "package", draft_bits=4)

    pack_splash(plan, None)

    package = SplashPackage.open(tmp_path / "package", splash.table)
    package.check_digests()
    expected = content(splash.path)
    made = content(tmp_path / "package")
    weights = [name for name in expected if name.endswith(".bin")]
    assert [name for name in weights if made[name] != expected[name]] == []
    assert package.manifest.upstream["target"]["repo_id"] == "target"


def write_repository(splash: TinySplash, directory: Path) -> None:
    """Target and vision tower as an MLX repository has them."""
    directory.mkdir()
    arrays = dict(splash_kit.parameters(splash.model))
    for name, tensor in splash_kit.vision_tensors(splash.row).items():
        array = to_mlx(tensor)
        if name == "patch_embed.proj.weight":  # channel, frame, row, column
            patches = array.reshape(-1, 3, 2, 2, 2)
            array = mx.contiguous(patches.transpose(0, 2, 3, 4, 1))
        arrays[f"vision_tower.{name}"] = array
    write_safetensors(arrays, directory / "model.safetensors")
    for path in (splash.path / "tokenizer").iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    package = SplashPackage.open(splash.path, splash.table)
    config = json.dumps(package.target_config())
    (directory / "config.json").write_text(config)


def write_draft(splash: TinySplash, directory: Path) -> None:
    """The unpacked drafter as its repository has it."""
    directory.mkdir()
    arrays = {name: to_mlx(t) for name, t in splash.draft.items()}
    write_safetensors(arrays, directory / "model.safetensors")
    config = SplashPackage.open(splash.path, splash.table).draft_config()
    del config["quantization"]
    (directory / "config.json").write_text(json.dumps(config))


def test_what_has_no_place_in_the_format_is_named(
    splash: TinySplash, tmp_path: Path
) -> None:
    parts = unpacked(splash, tmp_path / "parts")
    vision = splash.path / "vision" / "model.bin"

    plan = planned(splash, parts.target, None, tmp_path / "package")
    with pytest.raises(UsageError, match="has a drafter"):
        pack_splash(plan, vision)
    with pytest.raises(UsageError, match="vision tower"):
        pack_splash(
            planned(splash, parts.target, parts.draft, tmp_path / "package"), None
        )
    assert parts.draft is not None
    config = read_json(parts.draft / "config.json")
    config["dflash_config"]["mask_token_id"] -= 1
    (parts.draft / "config.json").write_text(json.dumps(config))
    with pytest.raises(PairError, match="mask_token_id"):
        pack_splash(
            planned(splash, parts.target, parts.draft, tmp_path / "package"), vision
        )
    assert not (tmp_path / "package").exists()


def test_a_target_of_other_sizes_has_no_format(
    splash: TinySplash, tmp_path: Path
) -> None:
    parts = unpacked(splash, tmp_path / "parts")
    plan = planned(splash, parts.target, parts.draft, tmp_path / "package")
    name = "language_model.lm_head.scales"
    dtype, shape = plan.target.plan.shards.entries[name]
    plan.target.plan.shards.entries[name] = (dtype, (*shape[:-1], 3))

    with pytest.raises(ModelKindError, match=r"lm_head\.scales"):
        pack_splash(plan, None)


def test_a_damaged_package_is_read_by_nobody(
    splash: TinySplash, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged"
    for name, data in content(splash.path).items():
        (damaged / name).parent.mkdir(parents=True, exist_ok=True)
        (damaged / name).write_bytes(data)
    path = damaged / "target" / "layer-2.bin"
    data = bytearray(path.read_bytes())
    data[-20000] ^= 128
    path.write_bytes(data)
    work = Work(silent, never, splash.table)

    with pytest.raises(IntegrityError, match=r"target/layer-2\.bin"):
        unpack(local(damaged), tmp_path / "parts", work=work)

    assert not (tmp_path / "parts").exists()


def test_the_manifest_of_a_native_package_is_read_again(
    splash: TinySplash, tmp_path: Path
) -> None:
    packed = pack(planned(splash, splash.path, splash.path, tmp_path / "native"))

    again = Manifest.open(tmp_path / "native")

    assert again == packed.manifest
    assert again.splash is not None
    assert again.splash["manifest"].encode() == (
        (splash.path / "manifest.json").read_bytes()
    )


def test_a_vision_file_that_is_not_there_is_named(
    splash: TinySplash, tmp_path: Path
) -> None:
    """Although the target brings a tower of its own."""
    target, draft = tmp_path / "target", tmp_path / "draft"
    write_repository(splash, target)
    write_draft(splash, draft)
    plan = planned(splash, target, draft, tmp_path / "package", draft_bits=4)
    missing = tmp_path / "vision" / "model.bin"

    with pytest.raises(IntegrityError, match="cannot be read") as failure:
        pack_splash(plan, missing)

    assert str(missing) in failure.value.message


@pytest.mark.parametrize("manifest", ["{", "[1]", '{"format": {"name": "other"}}'])
def test_what_is_kept_of_an_import_may_be_damaged(
    splash: TinySplash, tmp_path: Path, manifest: str
) -> None:
    parts = unpacked(splash, tmp_path / "parts")
    about = parts.target / "splashpy-part.json"
    data = read_json(about)
    data["splash"]["manifest"] = manifest
    about.write_text(json.dumps(data))
    plan = planned(splash, parts.target, parts.draft, tmp_path / "again")

    pack_splash(plan, splash.path / "vision" / "model.bin")

    SplashPackage.open(tmp_path / "again", splash.table).check_digests()


def test_damaged_decays_are_named(splash: TinySplash, tmp_path: Path) -> None:
    parts = unpacked(splash, tmp_path / "parts")
    (parts.target / "splash-extra.safetensors").write_bytes(b"damaged")
    plan = planned(splash, parts.target, parts.draft, tmp_path / "again")

    with pytest.raises(IntegrityError, match=r"splash-extra\.safetensors is damaged"):
        pack_splash(plan, splash.path / "vision" / "model.bin")
