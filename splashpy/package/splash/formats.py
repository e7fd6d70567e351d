# SPDX-License-Identifier: Apache-2.0
"""The two published Splash formats: all that their manifests leave out.

``splash-packed-q4`` holds Qwen3.8-27B, ``splash-packed-q4-moe`` Qwen3.6-35B-A3B; a
fine-tune of either has the same format. Other names of the family exist and are
refused, since nothing in their manifests tells how their files are laid out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splashpy.errors import VersionError
from splashpy.package.splash.geometry import (
    DraftGeometry,
    Experts,
    TargetGeometry,
    VisionGeometry,
)

ALIGNMENT = 16384
"""Bytes every section of a file starts at a multiple of."""

GROUP_SIZE = 64
"""Input channels that share a scale and a bias."""

TILE_ROWS = 256
"""Output rows of a tile; packed matrices have a multiple of it."""

EMBEDDING_MAGIC = b"MDFE0001"
DRAFT_MAGIC = b"MDFD0004"
VISION_MAGIC = b"MDFV0001"

_VISION = VisionGeometry(
    depth=27,
    width=1152,
    patch_values=3 * 2 * 16 * 16,
    positions=48 * 48,
    intermediate_size=4304,
    stored_intermediate_size=4352,
    merged_width=4608,
    out_width=5120,
)

_EXECUTION = {
    "allocation_extent_target_bytes": 134217728,
    "attention_history_group": 128,
    "draft_proposal_tokens": 7,
    "draft_query_rows": 8,
    "draft_sliding_window": 2048,
    "maximum_batch_width": 4,
    "prefill_token_budget": 2048,
    "target_kv_block_tokens": 32,
    "target_verify_rows": 8,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SplashFormat:
    """One row of the table.

    Attributes:
        name, schema: what the manifest must say.
        layer_magic, head_magic: of the target's files.
        model_type: of the target as mlx-lm calls it; its text part is called the
            same with ``_text``.
        quantization: integers of the manifest that describe the packing.
        target, draft, vision: sizes.
        stop_token_ids: tokens that end an answer.
        sampling: temperature, top-p and top-k the makers of the model advise.
        execution: integers of the manifest that describe the engine it was made for.
    """

    name: str
    schema: int
    layer_magic: bytes
    head_magic: bytes
    model_type: str
    quantization: Mapping[str, int]
    target: TargetGeometry
    draft: DraftGeometry
    vision: VisionGeometry
    stop_token_ids: tuple[int, ...] = (248044, 248046)
    sampling: tuple[float, float, int] = (1.0, 0.95, 20)
    execution: Mapping[str, int] = field(default_factory=lambda: _EXECUTION)

    @property
    def describes_models(self) -> bool:
        """Whether the manifest repeats the sizes of target and drafter."""
        return self.schema >= 4


FORMATS: dict[str, SplashFormat] = {
    "splash-packed-q4": SplashFormat(
        name="splash-packed-q4",
        schema=3,
        layer_magic=b"MDFL0006",
        head_magic=b"MDFL0002",
        model_type="qwen3_5",
        quantization={"q4_bits": 4, "q4_group_size": 64, "q4_storage_n": 256},
        target=TargetGeometry(
            num_layers=64,
            hidden_size=5120,
            vocab_size=248320,
            context_max=262144,
            attention_every=4,
            num_heads=24,
            num_kv_heads=4,
            head_dim=256,
            gdn_key_heads=16,
            gdn_value_heads=48,
            gdn_head_dim=128,
            intermediate_size=17408,
        ),
        draft=DraftGeometry(
            num_layers=5,
            hidden_size=5120,
            intermediate_size=17408,
            vocab_size=248320,
            mask_token_id=248070,
            feature_layers=(5, 19, 33, 47, 61),
        ),
        vision=_VISION,
    ),
    "splash-packed-q4-moe": SplashFormat(
        name="splash-packed-q4-moe",
        schema=4,
        layer_magic=b"MDFM0001",
        head_magic=b"MDFM0002",
        model_type="qwen3_5_moe",
        quantization={
            "q4_bits": 4,
            "q8_bits": 8,
            "quant_group_size": 64,
            "storage_n": 256,
        },
        target=TargetGeometry(
            num_layers=40,
            hidden_size=2048,
            vocab_size=248320,
            context_max=262144,
            attention_every=4,
            num_heads=16,
            num_kv_heads=2,
            head_dim=256,
            gdn_key_heads=16,
            gdn_value_heads=32,
            gdn_head_dim=128,
            experts=Experts(
                count=256,
                per_token=8,
                intermediate_size=512,
                shared_intermediate_size=512,
            ),
        ),
        draft=DraftGeometry(
            num_layers=6,
            hidden_size=2048,
            intermediate_size=6144,
            vocab_size=248320,
            # One beyond the last token of the tokenizer; its row exists.
            mask_token_id=248077,
            feature_layers=(1, 6, 11, 16, 22, 27, 32, 37),
        ),
        vision=VisionGeometry(
            depth=27,
            width=1152,
            patch_values=3 * 2 * 16 * 16,
            positions=48 * 48,
            intermediate_size=4304,
            stored_intermediate_size=4352,
            merged_width=4608,
            out_width=2048,
        ),
    ),
}


def find(
    name: str, where: str, formats: Mapping[str, SplashFormat] = FORMATS
) -> SplashFormat:
    """The row of a format name.

    Args:
        name: ``format.name`` of a manifest.
        where: the file, for the message.
        formats: the table.

    Raises:
        VersionError: no such format.
    """
    row = formats.get(name)
    if row is None:
        raise VersionError(
            f"{where}: Splash format {name!r} is not known",
            why=f"splashpy reads {' and '.join(formats)}",
        )
    return row


def manifest_target(row: SplashFormat) -> dict[str, Any]:
    """The ``target`` object of a manifest that describes its models."""
    target = row.target
    assert target.experts is not None  # only that schema has the object
    return {
        "architecture": row.model_type,
        "attention_packed_width": padded_rows(sum(target.attention_rows)),
        "experts": target.experts.count,
        "experts_per_token": target.experts.per_token,
        "gdn_actual_width": sum(target.gdn_rows),
        "gdn_packed_width": padded_rows(sum(target.gdn_rows)),
        "hidden_size": target.hidden_size,
        "layer_types": [
            "attention" if target.attends(layer) else "gdn"
            for layer in range(target.num_layers)
        ],
        "layers": target.num_layers,
        "moe_intermediate_size": target.experts.intermediate_size,
        "shared_expert_intermediate_size": target.experts.shared_intermediate_size,
        "vocabulary_size": target.vocab_size,
    }


def manifest_draft(row: SplashFormat) -> dict[str, Any]:
    """The ``draft`` object of a manifest that describes its models."""
    draft = row.draft
    return {
        "architecture": "DFlash2DraftModel",
        "block_size": draft.block_size,
        "dynamic_conv_group_size": draft.conv_group_size,
        "dynamic_conv_kernel_size": draft.conv_taps,
        "hidden_size": draft.hidden_size,
        "intermediate_size": draft.intermediate_size,
        "layers": draft.num_layers,
        "selector_rank": draft.selector_rank,
        "selector_top_k": draft.selector_top_k,
        "sliding_window": draft.sliding_window,
        "target_capture_layers": list(draft.feature_layers),
    }


def padded_rows(rows: int) -> int:
    """Rows of a packed matrix with those that fill its last tile."""
    return -(-rows // TILE_ROWS) * TILE_ROWS
