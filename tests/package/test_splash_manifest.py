# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from splash_kit import tiny_format

from splashpy.errors import ModelKindError, PackageError, VersionError
from splashpy.package.manifest import FileEntry
from splashpy.package.splash.formats import FORMATS, SplashFormat
from splashpy.package.splash.manifest import (
    TOKENIZER_FILES,
    SplashManifest,
    weight_files,
)

DENSE = tiny_format("splash-packed-q4")
MIXTURE = tiny_format("splash-packed-q4-moe")


def manifest(row: SplashFormat) -> SplashManifest:
    weights = [(file.path, file.num_bytes) for file in weight_files(row)]
    files = [*weights, *((path, 7) for path in TOKENIZER_FILES)]
    return SplashManifest(
        model="Tiny",
        row=row,
        files=tuple(
            FileEntry(path=path, size=size, sha256="ab" * 32)
            for path, size in sorted(files)
        ),
    )


def document(row: SplashFormat = MIXTURE) -> dict[str, Any]:
    return json.loads(manifest(row).to_bytes())


def read(data: dict[str, Any], row: SplashFormat = MIXTURE) -> SplashManifest:
    return SplashManifest.from_json(data, table={row.name: row})


@pytest.mark.parametrize("row", [DENSE, MIXTURE])
def test_what_is_written_is_read_again(row: SplashFormat) -> None:
    before = manifest(row)

    again = read(json.loads(before.to_bytes()), row)

    assert again == before
    assert before.to_bytes().endswith(b"\n")


def test_a_manifest_that_was_read_is_written_byte_for_byte() -> None:
    content = json.dumps(document()).encode()

    again = SplashManifest.from_json(
        json.loads(content), content=content, table={MIXTURE.name: MIXTURE}
    )

    assert again.to_bytes() == content


def test_the_published_sizes_make_the_published_number_of_files() -> None:
    assert [len(manifest(row).files) for row in FORMATS.values()] == [78, 55]


def test_unknown_keys_are_accepted_everywhere() -> None:
    data = document()
    for part in (data, data["format"], data["target"], data["execution_geometry"]):
        part["later"] = 1

    assert read(data).model == "Tiny"


def test_upper_case_digests_are_the_same_digests() -> None:
    data = document()
    data["artifacts"][0]["sha256"] = "AB" * 32

    assert read(data).files[0].sha256 == "ab" * 32


def set_at(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(data)
    *parents, last = path.split(".")
    at: Any = data
    for key in parents:
        at = at[int(key) if key.isdecimal() else key]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("format.name", "splash-packed-q8", "splash-packed-q8"),
        ("format.name", "gguf", "gguf"),
        ("schema_version", 5, "schema_version 5"),
        ("format.section_alignment_bytes", 16384.0, "section_alignment_bytes"),
        ("format.section_alignment_bytes", True, "section_alignment_bytes"),
        ("format.q4_bits", 3, "q4_bits"),
        ("format.q8_bits", ..., "q8_bits"),
        ("format.target_layer_magic", "MDFL0008", "target_layer_magic"),
        ("execution_geometry.draft_query_rows", 16, "draft_query_rows"),
        ("target.hidden_size", 4096, r"target\.hidden_size"),
        ("target.layer_types", ["gdn", "gdn", "gdn", 1], "layer_types"),
        ("draft.target_capture_layers", [1, 2.0], "target_capture_layers"),
        ("draft.target_capture_layers", [True, 2], "target_capture_layers"),
    ],
)
def test_another_version_is_refused_by_name(path: str, value: Any, named: str) -> None:
    with pytest.raises(VersionError, match=named):
        read(set_at(document(), path, value))


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("schema_version", True, "schema_version"),
        ("schema_version", ..., "schema_version"),
        ("model", " ", "model"),
        ("format", [], "format"),
        ("target", ..., "target"),
        ("execution_geometry.maximum_batch_width", 4.0, "maximum_batch_width"),
        ("artifacts", {}, "artifacts"),
        ("artifacts", [], "tokenizer/chat_template.jinja"),
        ("artifacts.0.size", 0, "size"),
        ("artifacts.0.size", 16385, "not a multiple of 16384"),
        ("artifacts.0.size", 32768, "draft/layer-0.bin"),
        ("artifacts.0.extra", 1, "exactly the keys"),
        ("artifacts.0.sha256", "xyz", "sha256"),
        ("artifacts.0.path", "/etc/passwd", "absolute"),
        ("artifacts.0.path", "../layer-0.bin", "leaves the package"),
        ("artifacts.0.path", "draft//layer-0.bin", "shortest form"),
        ("artifacts.0.path", "draft\\layer-0.bin", "contains"),
        ("artifacts.0.path", "manifest.json", "manifest.json"),
        ("artifacts.0.path", "draft/layer-1.bin", "twice"),
        ("artifacts.0.path", "draft/other.bin", "draft/layer-0.bin"),
    ],
)
def test_a_wrong_value_is_refused_by_name(path: str, value: Any, named: str) -> None:
    with pytest.raises(ModelKindError, match=named):
        read(set_at(document(), path, value))


def test_every_refusal_is_an_error_for_people() -> None:
    for data in ({}, {"format": {"name": 3}}, {"format": None}):
        with pytest.raises(PackageError):
            read(data)
