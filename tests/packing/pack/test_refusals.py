# SPDX-License-Identifier: Apache-2.0
"""What is not packed, and what does not come along."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
from packing.pack.making import CARD, content, run

from splashpy.errors import (
    IntegrityError,
    ModelKindError,
    PairError,
    RemoteCodeError,
    SplashError,
    UsageError,
)
from splashpy.packing.quantize_on_demand import Packing
from splashpy.packing.target_plan import PackingWish


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


def test_a_tokenizer_nobody_reads_is_found_by_the_self_check(
    target: Path, tmp_path: Path
) -> None:
    (target / "tokenizer.json").write_text('{"model": {"type": "odd", "vocab": {}}}')

    with pytest.raises(ModelKindError, match=r"tokenizer\.json: no tokenizer"):
        run(target, None, tmp_path / "package", check=True)

    assert not (tmp_path / "package").exists()


def test_sizes_that_do_not_go_together_are_told_as_mlx_lm_tells_them(
    target: Path, tmp_path: Path
) -> None:
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "head_dim": 10**9}))

    with pytest.raises(ModelKindError, match="mlx-lm does not load this model"):
        run(target, None, tmp_path / "package")
