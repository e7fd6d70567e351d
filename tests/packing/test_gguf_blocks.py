# SPDX-License-Identifier: Apache-2.0
"""Blocks and files of GGUF, against mlx's own reader and the gguf package."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf.quants import _type_traits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packing.tiny_gguf import tiny_gguf

from splashpy.errors import ModelKindError, PackageError, UsageError
from splashpy.package.weights.tensor import to_float32
from splashpy.packing import gguf_blocks
from splashpy.packing.gguf import GgufWeights, plan_gguf
from splashpy.packing.gguf_blocks import AFFINE, affine, plain
from splashpy.packing.gguf_file import GgufFile, GgufTensor
from splashpy.packing.quantize import quantize
from splashpy.packing.quantize_on_demand import Packing
from splashpy.packing.target_plan import PackingWish

EXPANDED = sorted(
    kind.name for kind in _type_traits if kind.name not in (*AFFINE, "BF16")
)


@pytest.mark.parametrize("packed", sorted(AFFINE))
def test_kept_codes_are_those_mlx_reads(tmp_path: Path, packed: str) -> None:
    path = tiny_gguf("qwen3", packed).write(tmp_path / "tiny.gguf")
    loaded: Any = mx.load(str(path), format="gguf")

    for name, tensor in GgufFile.open(path).tensors.items():
        if tensor.kind not in AFFINE:
            continue
        module = name.removesuffix(".weight")
        ours = affine(tensor, name)
        assert np.array_equal(np.array(loaded[name]), ours.weight.data)
        for part in ("scales", "biases"):
            expected = np.array(loaded[f"{module}.{part}"])
            assert np.array_equal(expected, getattr(ours, part).data)


@pytest.mark.parametrize("kind", EXPANDED)
def test_every_block_the_library_expands_is_expanded(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_blocks, "_PIECE_BLOCKS", 4)  # of six
    form = gguf.GGMLQuantizationType[kind]
    block, width = gguf.GGML_QUANT_SIZES[form]
    random = np.random.default_rng(3)
    data = random.integers(0, 256, (6 * width,), np.uint8)

    values = plain(GgufTensor(kind, (3, 2 * block), data), kind)

    assert values.shape == (3, 2 * block)
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(data.reshape(-1, width), form).astype(np.float16)
    assert values.data.tobytes() == expected.tobytes()


def five_bits(kind: str = "qwen3") -> Any:
    """A file whose matrices have blocks that cannot be kept."""
    tiny = tiny_gguf(kind, "F16")
    tiny.metadata["general.file_type"] = 8
    for name, (form, shape, _) in list(tiny.tensors.items()):
        if form == "F16" and "embd" not in name:
            values = tiny.values[name].astype(np.float32)
            packed = gguf.quantize(values, gguf.GGMLQuantizationType.Q5_0)
            tiny.tensors[name] = ("Q5_0", shape, packed.tobytes())
    return tiny


def test_what_cannot_be_kept_is_packed_anew(tmp_path: Path) -> None:
    path = five_bits().write(tmp_path / "tiny.gguf")

    wish = PackingWish(bits=8, group_size=32)
    plan = plan_gguf(path, wish)

    assert plan.changed
    assert plan.config["quantization"]["bits"] == 8
    name = "model.layers.1.mlp.up_proj"
    tensor = GgufFile.open(path).tensors["blk.1.ffn_up.weight"]
    expected = quantize(plain(tensor, name), group_size=32, bits=8, name=name)
    assert np.array_equal(plan.shards.give(f"{name}.weight").data, expected.weight.data)
    assert plan.shards.entries[f"{name}.scales"][0] == "F16"


def test_kept_and_new_packing_stand_side_by_side(tmp_path: Path) -> None:
    tiny, other = five_bits(), tiny_gguf("qwen3", "Q4_1")
    name = "blk.0.ffn_gate.weight"
    tiny.tensors[name] = other.tensors[name]

    plan = plan_gguf(tiny.write(tmp_path / "tiny.gguf"), PackingWish())

    packed = plan.config["quantization"]
    assert (packed["bits"], packed["group_size"]) == (4, 64)
    assert packed["model.layers.0.mlp.gate_proj"] == {"bits": 4, "group_size": 32}
    with pytest.raises(UsageError, match="packed already"):
        plan_gguf(other.write(tmp_path / "kept.gguf"), PackingWish(bits=8))


def test_rotary_rows_are_put_back_before_packing(tmp_path: Path) -> None:
    path = five_bits("llama").write(tmp_path / "tiny.gguf")
    tensor = GgufFile.open(path).tensors["blk.0.attn_q.weight"]
    stored = to_float32(plain(tensor, "q"))

    plan = plan_gguf(path, PackingWish(overrides=(("*.q_proj", None),)))

    rows = to_float32(plan.shards.give("model.layers.0.self_attn.q_proj.weight"))
    halves = stored.reshape(4, 8, 2, 64).transpose(0, 2, 1, 3)
    assert np.array_equal(rows, halves.reshape(64, 64))


GOOD = tiny_gguf("llama", "Q8_0")


@settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    changes=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4
    ),
    front=st.booleans(),
    cut=st.floats(0, 1),
)
def test_a_damaged_file_is_refused_or_read(
    tmp_path: Path, changes: list[tuple[float, int]], front: bool, cut: float
) -> None:
    path = tmp_path / "tiny.gguf"
    content = bytearray(GOOD.write(path).read_bytes())
    reach = 600 if front else len(content)  # counts, types and the first keys
    for at, value in changes:
        content[int(at * reach)] = value
    path.write_bytes(content[: max(1, int(cut * len(content) + 1))])

    with contextlib.suppress(PackageError):
        file = GgufFile.open(path)
        assert sum(tensor.data.size for tensor in file.tensors.values()) < len(content)
        plan_gguf(path, PackingWish())


@pytest.mark.parametrize("count", [2**63, 2**40, 10**6])
def test_an_announced_count_is_compared_with_the_file(
    tmp_path: Path, count: int
) -> None:
    path = GOOD.write(tmp_path / "tiny.gguf")
    content = bytearray(path.read_bytes())
    key = b"tokenizer.ggml.token_type"
    at = content.index(key) + len(key) + 4 + 4  # value type, element type
    content[at : at + 8] = count.to_bytes(8, "little")
    path.write_bytes(content)

    with pytest.raises(PackageError, match="cannot be read as GGUF"):
        GgufFile.open(path)


def test_weights_can_be_asked_for_in_any_order(tmp_path: Path) -> None:
    tensors = GgufFile.open(GOOD.write(tmp_path / "tiny.gguf")).tensors
    weights = GgufWeights({"lm_head": (tensors["blk.0.attn_q.weight"], 0)})

    assert weights.packings == {"lm_head": Packing(8, 32)}
    assert weights["lm_head.biases"].shape == (64, 2)
    assert weights["lm_head.weight"].shape == (64, 16)


@pytest.mark.parametrize("kind", ["Q6_K", "F32"])
def test_expanding_needs_little_beside_the_result(kind: str) -> None:
    block, width = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    count = 8 << 20
    data = np.zeros(count // block * width, np.uint8)
    weights = GgufWeights({})
    tracemalloc.start()
    try:
        weights = GgufWeights({"a": (GgufTensor(kind, (1024, count // 1024), data), 0)})
        size = weights["a.weight"].num_bytes
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak <= size + (20 << 20)


@pytest.mark.parametrize("scale", ["inf", "nan", "60000"])
def test_a_scale_that_is_no_number_is_refused(tmp_path: Path, scale: str) -> None:
    """60000 has no bias in float16: it would be 128 times as large."""
    tiny = tiny_gguf("qwen3", "Q8_0")
    kind, shape, content = tiny.tensors["blk.1.ffn_up.weight"]
    half = np.array(float(scale), np.float16).tobytes()
    tiny.tensors["blk.1.ffn_up.weight"] = (kind, shape, half + content[2:])
    plan = plan_gguf(tiny.write(tmp_path / "tiny.gguf"), PackingWish())

    with pytest.raises(ModelKindError, match=r"layers\.1\.mlp\.up_proj: a scale"):
        plan.shards.give("model.layers.1.mlp.up_proj.weight")


def test_tensors_that_share_bytes_are_refused(tmp_path: Path) -> None:
    path = GOOD.write(tmp_path / "tiny.gguf")
    content = bytearray(path.read_bytes())
    name = b"output_norm.weight"
    at = content.index(name) + len(name) + 4 + 8 + 4  # axes, their one length, type
    assert struct.unpack_from("<Q", content, at)[0] > 0
    struct.pack_into("<Q", content, at, 0)
    path.write_bytes(content)

    with pytest.raises(PackageError, match="cannot be read as GGUF") as failure:
        GgufFile.open(path)
    assert "overlaps" in failure.value.why


@pytest.mark.parametrize("shape", [(), (0, 32), (2**40, 0)])
def test_a_shape_blocks_do_not_fill_is_refused(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    tiny = tiny_gguf()
    tiny.tensors["blk.0.ffn_up.weight"] = ("Q8_0", shape, b"")

    with pytest.raises(PackageError, match="cannot be read as GGUF"):
        GgufFile.open(tiny.write(tmp_path / "tiny.gguf"))
