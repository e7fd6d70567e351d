# SPDX-License-Identifier: Apache-2.0
"""Names of beginnings, and the namespace they begin with."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.cache.chain import BLOCK, block_hashes, pack, shared_length
from splashpy.cache.identity import Namespace, draft_namespace

NAMESPACE = Namespace(
    weights="w",
    model_type="llama",
    kv="bf16",
    dtype="float32",
    device="cpu",
    mlx="0.32",
    mlx_lm="0.32.2",
)

tokens = st.lists(st.integers(0, 3), max_size=40)


def test_a_hash_covers_its_block_and_every_one_before() -> None:
    ids = list(range(600))
    root = bytes(range(32))
    expected, previous = [], root
    for start in (0, 256):
        data = struct.pack("<256I", *ids[start : start + 256])
        text = previous + data + bytes(32)
        previous = hashlib.blake2b(text, digest_size=32).digest()
        expected.append(previous)
    assert list(block_hashes(root, pack(ids))) == expected
    # Computed once with the lines above; whoever changes it loses every cache.
    assert expected[1].hex()[:16] == "ac812c2abf175e26"


def test_another_root_or_an_earlier_change_gives_other_hashes() -> None:
    ids = [7] * 3 * BLOCK
    plain = list(block_hashes(bytes(32), pack(ids)))
    assert not set(plain) & set(block_hashes(b"x" * 32, pack(ids)))
    changed = list(block_hashes(bytes(32), pack([*ids[:300], 8, *ids[301:]])))
    assert [a == b for a, b in zip(plain, changed, strict=True)] == [True, False, False]


@given(tokens, tokens)
def test_the_shared_length_is_what_counting_gives(
    one: list[int], other: list[int]
) -> None:
    counted = 0
    while counted < min(len(one), len(other)) and one[counted] == other[counted]:
        counted += 1
    assert shared_length(pack(one), pack(other)) == counted


@pytest.mark.parametrize("name", [item.name for item in fields(Namespace)])
def test_every_field_makes_another_namespace(name: str) -> None:
    other = replace(NAMESPACE, **{name: getattr(NAMESPACE, name) + "x"})
    assert other.digest != NAMESPACE.digest
    assert replace(NAMESPACE).digest == NAMESPACE.digest


def test_a_drafters_namespace_names_both_models() -> None:
    one = draft_namespace(NAMESPACE.digest, "d")
    assert one != draft_namespace(NAMESPACE.digest, "e")
    assert one != draft_namespace(replace(NAMESPACE, weights="v").digest, "d")
