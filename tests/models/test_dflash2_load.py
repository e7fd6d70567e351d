# SPDX-License-Identifier: Apache-2.0
"""Loading real files: the stored random drafter of 64 channels, in other clothes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from splashpy.errors import IntegrityError, ModelKindError, PairError, UsageError
from splashpy.kernels import metal
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.dflash2_load import load_drafter
from splashpy.models.target import TargetFacts

STORED = Path(__file__).parents[1] / "golden" / "dflash2" / "v2_full"
CONFIG: dict[str, Any] = json.loads((STORED / "config.json").read_text())
FACTS = TargetFacts(
    model_type="imaginary",
    vocab_size=CONFIG["vocab_size"],
    hidden_size=64,
    num_layers=8,
    context_max=4096,
)
GATE = "candidate_selector.hidden_projection.weight"
CODEBOOK = "candidate_selector.predecessor_codebook"

Tensors = dict[str, mx.array]
Write = Callable[..., Path]


def stored_tensors() -> Tensors:
    loaded = mx.load(str(STORED / "model.safetensors"))
    assert isinstance(loaded, dict)
    return loaded


def parameters(network: DFlashNetwork) -> Tensors:
    flat: Any = tree_flatten(network.parameters())
    return dict(flat)


def hidden_rows(network: DFlashNetwork) -> mx.array:
    key, other = mx.random.split(mx.random.key(1), 2)
    context = network.new_context()
    network.extend(context, mx.random.normal((9, 3 * 64), key=key))
    return network(mx.random.normal((8, 64), key=other), context).astype(mx.float32)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a checkpoint: ``write(tensors, shards=1, **config_changes)``."""

    def write_checkpoint(tensors: Tensors, *, shards: int = 1, **changes: Any) -> Path:
        (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **changes}))
        if shards == 1:
            mx.save_safetensors(str(tmp_path / "model.safetensors"), tensors)
            return tmp_path
        names = sorted(tensors)
        weight_map = {}
        for shard in range(shards):
            file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
            mine = {name: tensors[name] for name in names[shard::shards]}
            mx.save_safetensors(str(tmp_path / file), mine)
            weight_map.update(dict.fromkeys(mine, file))
        index = json.dumps({"metadata": {}, "weight_map": weight_map})
        (tmp_path / "model.safetensors.index.json").write_text(index)
        return tmp_path

    return write_checkpoint


def test_every_tensor_keeps_its_published_name_and_value() -> None:
    loaded = parameters(load_drafter(STORED, FACTS, dtype=mx.float32))
    stored = stored_tensors()
    assert loaded.keys() == stored.keys()
    assert all(mx.array_equal(loaded[name], stored[name]) for name in stored)


def test_shards_give_the_same_network(write: Write) -> None:
    folder = write(stored_tensors(), shards=3)
    loaded = parameters(load_drafter(folder, FACTS, dtype=mx.float32))
    stored = stored_tensors()
    assert all(mx.array_equal(loaded[name], stored[name]) for name in stored)


def test_other_names_of_the_same_tensors_are_understood(write: Write) -> None:
    tensors = {f"model.{name}": array for name, array in stored_tensors().items()}
    for other, name in (
        ("encoder.fc.weight", "fc.weight"),
        ("model.encoder.output_norm_enc.weight", "hidden_norm.weight"),
        (f"{CODEBOOK}.weight", CODEBOOK),
    ):
        tensors[other] = tensors.pop(f"model.{name}")
    loaded = parameters(load_drafter(write(tensors), FACTS, dtype=mx.float32))
    assert mx.array_equal(loaded[CODEBOOK], stored_tensors()[CODEBOOK])


@pytest.mark.parametrize("stored", [mx.float16, mx.bfloat16, mx.float32])
@pytest.mark.parametrize("wanted", [None, mx.bfloat16])
def test_activations_are_never_float16(
    write: Write, stored: mx.Dtype, wanted: mx.Dtype | None
) -> None:
    tensors = {name: a.astype(stored) for name, a in stored_tensors().items()}
    network = load_drafter(write(tensors), FACTS, dtype=wanted)
    usual = mx.bfloat16 if metal.use_metal() else mx.float32
    expected = wanted or usual
    assert {a.dtype for a in parameters(network).values()} == {expected}
    context = network.new_context()
    network.extend(context, mx.ones((3, 3 * 64), dtype=mx.float16))
    hidden = network(mx.ones((8, 64), dtype=mx.float16), context)
    assert {a.dtype for a in (hidden, *context.arrays)} == {expected}


@pytest.mark.parametrize("bits", [4, 8])
def test_matrices_are_packed_at_load_and_nothing_else(bits: int) -> None:
    network = load_drafter(STORED, FACTS, bits=bits, dtype=mx.bfloat16)
    packed = {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, nn.QuantizedLinear)
    }
    assert {module.bits for module in packed.values()} == {bits}
    assert "fc" in packed
    assert "layers.0.mlp_conv.kernel_projection" in packed
    for name, array in parameters(network).items():
        if not name.endswith(".weight"):
            assert array.dtype == mx.bfloat16
    # In float32 the same values are unpacked: bfloat16 rounding is between them.
    unpacked = load_drafter(STORED, FACTS, bits=bits, dtype=mx.float32)
    assert {a.dtype for a in parameters(unpacked).values()} == {mx.float32}
    assert mx.abs(hidden_rows(network) - hidden_rows(unpacked)).max().item() < 0.2
    # And the rounding of the weights is much larger than that for 4 bits.
    exact = hidden_rows(load_drafter(STORED, FACTS, dtype=mx.float32))
    error = mx.abs(hidden_rows(unpacked) - exact).max().item()
    assert 0 < error < (2.5 if bits == 4 else 0.25)


def packed_file(write: Write, group_size: int, bits: int) -> Path:
    """A checkpoint as mlx-lm packs one."""
    tensors = stored_tensors()
    for name in [n for n in tensors if n.endswith("proj.weight")]:
        weight, scales, biases = mx.quantize(
            tensors[name].astype(mx.bfloat16), group_size=group_size, bits=bits
        )
        stem = name.removesuffix("weight")
        tensors |= {name: weight, f"{stem}scales": scales, f"{stem}biases": biases}
    stated = {"group_size": group_size, "bits": bits, "mode": "affine"}
    return write(tensors, quantization=stated)


@pytest.mark.parametrize(("group_size", "bits"), [(32, 4), (32, 8)])
def test_a_packed_file_is_kept_as_it_is_or_unpacked(
    write: Write, group_size: int, bits: int
) -> None:
    folder = packed_file(write, group_size, bits)
    kept = load_drafter(folder, FACTS, dtype=mx.bfloat16)
    module = kept.layers[0].self_attn.q_proj
    assert isinstance(module, nn.QuantizedLinear)
    assert (module.group_size, module.bits) == (group_size, bits)
    same = load_drafter(folder, FACTS, bits=bits, dtype=mx.bfloat16)
    assert mx.array_equal(same.layers[0].self_attn.q_proj.weight, module.weight)

    unpacked = load_drafter(folder, FACTS, bits=16, dtype=mx.bfloat16)
    assert not isinstance(unpacked.layers[0].self_attn.q_proj, nn.QuantizedLinear)
    assert mx.abs(hidden_rows(kept) - hidden_rows(unpacked)).max().item() < 0.2


def test_packed_tensors_without_a_quantization_key_are_refused(write: Write) -> None:
    folder = packed_file(write, 32, 4)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(ModelKindError, match="does not say how"):
        load_drafter(folder, FACTS)


def test_a_quantization_that_does_not_fit_the_tensors_is_refused(write: Write) -> None:
    folder = packed_file(write, 32, 4)
    for stated in ({"group_size": 64, "bits": 8}, {"group_size": 48, "bits": 4}):
        raw = {**CONFIG, "quantization": stated}
        (folder / "config.json").write_text(json.dumps(raw))
        with pytest.raises(ModelKindError):
            load_drafter(folder, FACTS)


def test_missing_selector_weights_are_named_not_ignored(write: Write) -> None:
    tensors = stored_tensors()
    del tensors[GATE]
    with pytest.raises(ModelKindError) as caught:
        load_drafter(write(tensors), FACTS)
    assert caught.value.why == f"missing: {GATE}"


def test_unknown_and_misshapen_tensors_are_named(write: Write) -> None:
    tensors = stored_tensors()
    tensors["lm_head.weight"] = mx.zeros((2, 2))
    tensors["fc.weight"] = tensors["fc.weight"][:, :-1]
    with pytest.raises(ModelKindError) as caught:
        load_drafter(write(tensors), FACTS)
    assert caught.value.why == (
        "unknown: lm_head.weight; "
        "wrong shape: fc.weight is [64, 191], expected [64, 192]"
    )


def test_a_long_list_of_names_is_cut(write: Write) -> None:
    with pytest.raises(ModelKindError, match="tensors") as caught:
        load_drafter(write({"fc.weight": mx.zeros((64, 192))}), FACTS)
    assert caught.value.why.endswith("more")
    assert len(caught.value.why) < 400


@pytest.mark.parametrize("size", [0, 4, 100, -50])
def test_a_file_cut_short_is_refused_with_its_name_and_size(
    size: int, write: Write
) -> None:
    folder = write(stored_tensors())
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(
        IntegrityError, match=r"model\.safetensors is damaged"
    ) as caught:
        load_drafter(folder, FACTS)
    assert "it has" in caught.value.why
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/hostname"])
def test_no_index_reaches_out_of_its_directory(write: Write, name: str) -> None:
    folder = write(stored_tensors(), shards=2)
    index = json.dumps({"weight_map": {CODEBOOK: name}})
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(IntegrityError, match="a file elsewhere"):
        load_drafter(folder, FACTS)


def test_a_missing_shard_is_an_incomplete_download(write: Write) -> None:
    folder = write(stored_tensors(), shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(IntegrityError, match="incomplete download") as caught:
        load_drafter(folder, FACTS)
    assert caught.value.why == "missing: model-00002-of-00003.safetensors"


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_an_unreadable_configuration_is_named(write: Write, text: str | None) -> None:
    folder = write(stored_tensors())
    path = folder / "config.json"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(IntegrityError, match=r"config\.json"):
        load_drafter(folder, FACTS)


def test_a_wrong_target_is_refused_before_a_weight_is_read(write: Write) -> None:
    folder = write(stored_tensors())
    (folder / "model.safetensors").unlink()
    narrow = TargetFacts(
        model_type="imaginary",
        vocab_size=FACTS.vocab_size,
        hidden_size=48,
        num_layers=8,
        context_max=4096,
    )
    with pytest.raises(PairError, match="does not fit"):
        load_drafter(folder, narrow)


def test_bits_outside_the_choices_are_a_usage_error() -> None:
    with pytest.raises(UsageError, match="3-bit"):
        load_drafter(STORED, FACTS, bits=3)


def test_progress_reaches_the_total() -> None:
    seen: list[tuple[int, int]] = []
    network = load_drafter(STORED, FACTS, progress=lambda *step: seen.append(step))
    total = sum(a.nbytes for a in parameters(network).values())
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)
