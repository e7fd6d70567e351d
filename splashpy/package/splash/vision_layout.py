# SPDX-License-Identifier: Apache-2.0
"""The file of the vision tower: recognised, copied and packed, never run.

A patch is stored as channel, frame, row, column, the order of PyTorch's convolution;
an MLX checkpoint has frame, row, column, channel.
"""

from __future__ import annotations

from splashpy.package.splash.formats import VISION_MAGIC, SplashFormat
from splashpy.package.splash.layout import FileLayout, Plain

VISION_PATH = "vision/model.bin"


def vision_file(row: SplashFormat) -> FileLayout:
    """``vision/model.bin``: weight and bias of every module, a section each."""
    vision = row.vision
    wide, inner = vision.width, vision.intermediate_size
    sections = [
        *_module("patch_embed.proj", (wide, vision.patch_values)),
        _plain("pos_embed.weight", (vision.positions, wide)),
    ]
    for block in range(vision.depth):
        sections += _block(f"blocks.{block}.", wide, inner, row)
    merged = vision.merged_width
    sections += [
        *_norm("merger.norm", wide),
        *_module("merger.linear_fc1", (merged, merged)),
        *_module("merger.linear_fc2", (vision.out_width, merged)),
    ]
    return FileLayout(VISION_PATH, VISION_MAGIC, vision.depth, 0, tuple(sections))


def _block(block: str, wide: int, inner: int, row: SplashFormat) -> list[Plain]:
    stored = row.vision.stored_intermediate_size
    first, second = f"{block}mlp.linear_fc1", f"{block}mlp.linear_fc2"
    return [
        *_norm(f"{block}norm1", wide),
        *_module(f"{block}attn.qkv", (3 * wide, wide)),
        *_module(f"{block}attn.proj", (wide, wide)),
        *_norm(f"{block}norm2", wide),
        _plain(f"{first}.weight", (inner, wide), (stored, wide)),
        _plain(f"{first}.bias", (inner,), (stored,)),
        _plain(f"{second}.weight", (wide, inner), (wide, stored)),
        _plain(f"{second}.bias", (wide,)),
    ]


def _module(name: str, shape: tuple[int, int]) -> list[Plain]:
    return [_plain(f"{name}.weight", shape), _plain(f"{name}.bias", shape[:1])]


def _norm(name: str, wide: int) -> list[Plain]:
    return [_plain(f"{name}.weight", (wide,)), _plain(f"{name}.bias", (wide,))]


def _plain(
    name: str, shape: tuple[int, ...], stored: tuple[int, ...] | None = None
) -> Plain:
    return Plain(name, "BF16", shape, stored)
