# SPDX-License-Identifier: Apache-2.0
"""Digests of files that Splash's own writers made from invented weights.

Origin: the Splash repository (incoai/splash), weight goldens of its test fixtures,
keys for affine images, draft images and the vision image, and the description of the
inputs beside them; the last test is MLX 0.32.3's own public quantization fixture. The
numbers below describe those inputs: tensor t (from 1, in the order of the files) has
byte or element i by the formula of its set.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from splashpy.package.splash import decay
from splashpy.package.splash.formats import FORMATS, SplashFormat
from splashpy.package.splash.geometry import Experts
from splashpy.package.splash.image import write_image
from splashpy.package.splash.layout import (
    ITEM_BYTES,
    FileLayout,
    Packed,
    draft_files,
    target_files,
)
from splashpy.package.splash.vision_layout import vision_file
from splashpy.package.weights.tensor import STORAGE, Tensor, to_bfloat16
from splashpy.packing.quantize import quantize
from splashpy.packing.quantize_on_demand import Packing, QuantizeOnDemand

DENSE = {
    "target/layer-0.bin": (
        "475768a2f36a25870f844e3c99d5cd1b85c00c8c3569f3f0abc3a1bffc14fd0b"
    ),
    "target/layer-1.bin": (
        "228844988bdd3ecf8cd32395b2a1fd3820f4bd7f91c68683f5b633e1c1919d1f"
    ),
    "target/head.bin": (
        "3dde9dffefd58b1b0bb06e445b4347eb2cf5412b203f1b2f6ebe00d681dc1c8f"
    ),
    "target/embedding.bin": (
        "5bfea1223081c0b006d617ee0fc044517937a4cd9fe9503421537e8d8c459211"
    ),
}
MIXTURE = {
    "target/layer-0.bin": (
        "5b9926e5cbd89f8c772ed8308abc1e4dae140a67e2c44cddbd4ce8e688dcda61"
    ),
    "target/layer-1.bin": (
        "76e65f55a4b9ed13103583bd44da12fe2dc4258584b82a7df3f0f7cb0aebae69"
    ),
    "target/head.bin": (
        "25556e9c9b5c9629e2707cd4f90f82008a722cf82a64ec0dc97665ae242aefc6"
    ),
    "target/embedding.bin": (
        "3623464c3b923b290f556b1a66612f9012c0e249d3d49982b13300003dd81edf"
    ),
}
DRAFT = {
    "draft/layer-0.bin": (
        "283c85c3c12a1777fc05ef1306a45fc3a180963f8477191d49abf09d0a1afb00"
    ),
    "draft/layer-1.bin": (
        "5b5b0e09cba0218be18586751d4412ef689db465c1ac3976011365ff575c4d14"
    ),
    "draft/model.bin": (
        "377d2766849aa742ad6a1027f9779ec5553b1c5a336a333b309207f26e94f901"
    ),
}
VISION = "f1a165335c42384479f73d83e69146cfa46d4964d66ed13c663b158fed08cdd5"


def small(name: str, *, experts: bool) -> SplashFormat:
    """A published format with the sizes of the golden inputs."""
    row = FORMATS[name]
    target = replace(
        row.target,
        num_layers=2,
        hidden_size=256,
        vocab_size=256,
        attention_every=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=64,
        gdn_key_heads=2,
        gdn_value_heads=4,
        gdn_head_dim=64,
        intermediate_size=0 if experts else 512,
        experts=Experts(
            count=256,
            per_token=8,
            intermediate_size=256,
            shared_intermediate_size=256,
        )
        if experts
        else None,
    )
    draft = replace(
        row.draft,
        num_layers=2,
        hidden_size=256,
        intermediate_size=256,
        vocab_size=256,
        num_heads=2,
        num_kv_heads=1,
        head_dim=64,
        conv_group_size=4,
        feature_layers=(0,),
    )
    vision = replace(
        row.vision,
        depth=2,
        width=8,
        patch_values=3 * 2 * 4,
        positions=4,
        intermediate_size=10,
        stored_intermediate_size=16,
        merged_width=32,
        out_width=8,
    )
    return replace(row, target=target, draft=draft, vision=vision)


def digest(layout: FileLayout, tensor: Callable[[str], Tensor]) -> str:
    file = io.BytesIO()
    write_image(file, layout, tensor)
    assert len(file.getvalue()) == layout.num_bytes
    return hashlib.sha256(file.getvalue()).hexdigest()


def counted(files: list[FileLayout]) -> dict[str, tuple[int, str, tuple[int, ...]]]:
    """Name to the number a tensor was made as, its type and shape."""
    entries = [item for layout in files for item in layout.tensors().items()]
    return {
        name: (number, dtype, shape)
        for number, (name, (dtype, shape)) in enumerate(entries, 1)
    }


@pytest.mark.parametrize(
    ("name", "experts", "a_log", "expected"),
    [
        (
            "splash-packed-q4",
            False,
            Tensor("F32", np.zeros(4, np.float32)),
            DENSE,
        ),
        (
            "splash-packed-q4-moe",
            True,
            to_bfloat16(np.array([0.5, -1, 2, 0], np.float32)),
            MIXTURE,
        ),
    ],
)
def test_target_files_are_those_splash_writes(
    name: str, experts: bool, a_log: Tensor, expected: dict[str, str]
) -> None:
    files = target_files(small(name, experts=experts))
    numbers = counted(files)

    def tensor(wanted: str) -> Tensor:
        if wanted.endswith(".decay"):
            return decay.from_a_log(a_log)
        number, dtype, shape = numbers[wanted]
        count = math.prod(shape) * ITEM_BYTES[dtype]
        content = (31 * np.arange(count) + 17 * number).astype(np.uint8)
        return Tensor(dtype, content.view(STORAGE[dtype]).reshape(shape))

    assert {layout.path: digest(layout, tensor) for layout in files} == expected


def test_draft_files_are_those_splash_quantizes() -> None:
    files = draft_files(small("splash-packed-q4", experts=False))
    weights: dict[str, Tensor] = {}
    modules: list[str] = []
    for layout in files:
        for section in layout.sections:
            if isinstance(section, Packed):
                modules += [module for module, _ in section.parts]
                parts = {
                    f"{module}.weight": (rows, section.columns)
                    for module, rows in section.parts
                }
            else:
                parts = {section.tensor: section.shape}
            for name, shape in parts.items():
                weights[name] = counted_up(shape, len(weights) + 1)
    first = "layers.0.attention_conv.kernel_projection.weight"
    weights[first] = to_bfloat16(difficult_groups())
    tensor = QuantizeOnDemand(weights, dict.fromkeys(modules, Packing(4, 64)))

    assert {layout.path: digest(layout, tensor) for layout in files} == DRAFT


def counted_up(shape: tuple[int, ...], number: int) -> Tensor:
    steps = (37 * np.arange(math.prod(shape)) + 11 * number) % 509 - 254
    return to_bfloat16((steps / 64).astype(np.float32).reshape(shape))


def difficult_groups() -> np.ndarray:
    """[256, 256]: zeros, constants, all negative, and values on a half step."""
    i = np.arange(64)
    groups = [
        np.zeros(64),
        np.full(64, 0.75),
        np.concatenate([[2.5, 8.5], np.arange(62) % 16]),
        (i % 20) / 4 - 4,
        np.full(64, -0.75),
        -((i % 16) + 1) / 4,
        np.concatenate([[-1 / 64], -((np.arange(63) % 32) + 1) / 8]),
        np.concatenate([[-2.5, -8.5], -((np.arange(62) % 15) + 1)]),
    ]
    rest = ((37 * np.arange(254 * 256) + 11) % 509 - 254) / 64
    return np.concatenate([*groups, rest]).astype(np.float32).reshape(256, 256)


def test_the_vision_file_is_the_one_splash_writes() -> None:
    layout = vision_file(small("splash-packed-q4", experts=False))
    numbers = {section.tensor: s for s, section in enumerate(layout.sections)}
    shapes = layout.tensors()

    def tensor(name: str) -> Tensor:
        _, shape = shapes[name]
        k = np.arange(math.prod(shape))
        values = ((7 * k + 11 * numbers[name]) % 255 - 127) / 64
        values[:3] = [-0.0, math.inf, 2.0**-24]
        made = to_bfloat16(values.astype(np.float32)).data
        if name == "patch_embed.proj.weight":  # made as frame, pixel, channel
            made = made.reshape(8, 2, 4, 3).transpose(0, 3, 1, 2)
        return Tensor("BF16", made.reshape(shape))

    assert digest(layout, tensor) == VISION


def test_a_public_fixture_of_mlx_is_quantized_alike() -> None:
    """No value of it lies on a half step, so both of MLX's rules agree on it."""
    values = mx.random.normal((2, 256), key=mx.random.key(464)) * 0.02
    bits = np.array(values.astype(mx.bfloat16).view(mx.uint16))

    packed = quantize(Tensor("BF16", bits), group_size=64, bits=4, name="fixture")

    assert hashlib.sha256(packed.weight.data.tobytes()).hexdigest() == (
        "63cd1934ff4162ad3d8bb77d3635aec94570019c2f6e22b6c3fc1304c416159f"
    )
    assert packed.scales.data.tobytes().hex() == "d23befbbe3bba4bbbf3bc3bbfa3bd33b"
    assert packed.biases.data.tobytes().hex() == "6cbd6f3d633d393d3fbd433d7abd53bd"
