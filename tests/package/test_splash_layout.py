# SPDX-License-Identifier: Apache-2.0
"""Sizes and offsets of the published packages, computed without a weight.

Origin of the numbers: file sizes of incoai/Qwen3.8-27B-Splash and
incoai/Qwen3.6-35B-A3B-Splash as published, and the structural fingerprints of Splash's
own description of them.
"""

from __future__ import annotations

import hashlib

import pytest

from splashpy.package.splash.formats import FORMATS, SplashFormat
from splashpy.package.splash.layout import (
    FileLayout,
    Packed,
    draft_files,
    draft_layer,
    draft_model,
    target_files,
    target_layer,
)
from splashpy.package.splash.manifest import weight_files
from splashpy.package.splash.vision_layout import vision_file

DENSE = FORMATS["splash-packed-q4"]
MIXTURE = FORMATS["splash-packed-q4-moe"]


@pytest.mark.parametrize(
    ("row", "target", "draft", "vision", "count", "total"),
    [
        (DENSE, 15_159_640_064, 1_266_040_832, 930_250_752, 73, 17_355_931_648),
        (MIXTURE, 19_541_082_112, 479_444_992, 901_939_200, 50, 20_922_466_304),
    ],
)
def test_totals_are_the_published_ones(
    row: SplashFormat, target: int, draft: int, vision: int, count: int, total: int
) -> None:
    assert sum(file.num_bytes for file in target_files(row)) == target
    assert sum(file.num_bytes for file in draft_files(row)) == draft
    assert vision_file(row).num_bytes == vision
    assert len(weight_files(row)) == count
    assert sum(file.num_bytes for file in weight_files(row)) == total


@pytest.mark.parametrize(
    ("row", "sizes"),
    [
        (
            DENSE,
            {
                "target/layer-0.bin": 216_203_264,
                "target/layer-63.bin": 209_469_440,
                "target/head.bin": 715_194_368,
                "target/embedding.bin": 715_177_984,
                "draft/layer-4.bin": 187_449_344,
                "draft/model.bin": 328_794_112,
            },
        ),
        (
            MIXTURE,
            {
                "target/layer-0.bin": 475_201_536,
                "target/layer-39.bin": 471_285_760,
                "target/head.bin": 286_097_408,
                "target/embedding.bin": 286_081_024,
                "draft/layer-5.bin": 34_324_480,
                "draft/model.bin": 273_498_112,
            },
        ),
    ],
)
def test_files_have_their_published_sizes(
    row: SplashFormat, sizes: dict[str, int]
) -> None:
    found = {file.path: file.num_bytes for file in weight_files(row)}

    assert {path: found[path] for path in sizes} == sizes


@pytest.mark.parametrize(
    ("layout", "offsets"),
    [
        (
            target_layer(DENSE, 0),
            [
                *(16384, 32768, 47955968, 48037888, 48054272, 48070656, 48087040),
                *(65781760, 65798144, 115933184, 166068224),
            ],
        ),
        (
            target_layer(DENSE, 3),
            [
                *(16384, 32768, 41320448, 41336832, 41353216, 59047936, 59064320),
                *(109199360, 159334400),
            ],
        ),
        (
            target_layer(MIXTURE, 3),
            [
                *(16384, 32768, 10649600, 10665984, 10682368, 15400960, 15417344),
                *(15974400, 166969344, 317964288, 468959232, 469549056, 470138880),
                470728704,
            ],
        ),
        (
            draft_layer(DENSE, 0),
            [
                *(16384, 32768, 81920, 3768320, 21463040, 21479424, 21495808),
                *(33292288, 33308672, 33357824, 37044224, 87179264, 137314304),
            ],
        ),
        (
            draft_model(MIXTURE),
            [16384, 18890752, 18907136, 18923520, 19218432, 146358272],
        ),
    ],
)
def test_sections_lie_where_published_files_have_them(
    layout: FileLayout, offsets: list[int]
) -> None:
    assert [offset for offset, _ in layout.placed()] == offsets


def test_the_vision_file_has_a_section_for_every_weight_and_bias() -> None:
    offsets = [offset for offset, _ in vision_file(DENSE).placed()]

    assert len(offsets) == 333
    assert offsets[:6] == [16384, 3555328, 3571712, 8880128, 8896512, 8912896]


@pytest.mark.parametrize(
    ("row", "fingerprint"),
    [
        (DENSE, "21e559f8a93ebc2a8129ea8bed6bd6202ebc61b788985f9611d6f167ab16000a"),
        (MIXTURE, "c279b5590cff6aa7e9dea27a182bfd6fd11a0b38fdb7be8ea2f2adb0e8350677"),
    ],
)
def test_headers_and_sizes_have_the_published_fingerprint(
    row: SplashFormat, fingerprint: str
) -> None:
    text = "splash-packed-manifest-v1\n" + "".join(
        f"{file.path}\t{file.num_bytes}\t{file.magic.decode()}\t{file.layer}"
        f"\t{file.kind}\n"
        for file in sorted(weight_files(row), key=lambda file: file.path)
    )

    assert hashlib.sha256(text.encode()).hexdigest() == fingerprint


def test_only_fused_inputs_and_the_scalar_gate_need_rows_of_padding() -> None:
    padded = {
        section.parts[0][0].rsplit(".", 1)[-1]: section.rows - section.live_rows
        for row in (DENSE, MIXTURE)
        for file in weight_files(row)
        for section in file.sections
        if isinstance(section, Packed) and section.rows != section.live_rows
    }

    assert padded == {"in_proj_qkv": 192, "shared_expert_gate": 255}
