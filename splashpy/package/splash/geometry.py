# SPDX-License-Identifier: Apache-2.0
"""Sizes a Splash format implies: of the target, the drafter and the vision tower."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of experts in place of one MLP.

    Attributes:
        count: experts of a layer.
        per_token: experts a token is sent to.
        intermediate_size: channels inside one expert.
        shared_intermediate_size: channels inside the expert every token visits.
    """

    count: int
    per_token: int
    intermediate_size: int
    shared_intermediate_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetGeometry:
    """A hybrid target: gated delta networks (GDN) and, regularly, full attention.

    Attributes:
        num_layers, hidden_size, vocab_size, context_max: as in its config.json.
        attention_every: layer N attends when (N + 1) is a multiple of it; the others
            are GDN layers.
        num_heads, num_kv_heads, head_dim: of attention layers.
        gdn_key_heads, gdn_value_heads, gdn_head_dim: of GDN layers.
        conv_taps: of the convolution before a GDN.
        intermediate_size: channels inside an MLP; 0 with experts.
        experts: None for a dense model.
    """

    num_layers: int
    hidden_size: int
    vocab_size: int
    context_max: int
    attention_every: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    gdn_key_heads: int
    gdn_value_heads: int
    gdn_head_dim: int
    conv_taps: int = 4
    intermediate_size: int = 0
    experts: Experts | None = None

    @property
    def attention_width(self) -> int:
        """Channels of all query heads; the query projection has a gate beside each."""
        return self.num_heads * self.head_dim

    @property
    def attention_rows(self) -> tuple[int, int, int]:
        """Rows of the query (with gate), key and value projection."""
        key_value = self.num_kv_heads * self.head_dim
        return 2 * self.attention_width, key_value, key_value

    @property
    def gdn_width(self) -> int:
        """Channels of all GDN value heads."""
        return self.gdn_value_heads * self.gdn_head_dim

    @property
    def conv_channels(self) -> int:
        """Queries, keys and values of a GDN layer together."""
        return 2 * self.gdn_key_heads * self.gdn_head_dim + self.gdn_width

    @property
    def gdn_rows(self) -> tuple[int, int, int, int]:
        """Rows of the qkv, z, b and a projection."""
        heads = self.gdn_value_heads
        return self.conv_channels, self.gdn_width, heads, heads

    def attends(self, layer: int) -> bool:
        """Whether a layer has full attention."""
        return (layer + 1) % self.attention_every == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftGeometry:
    """A DFlash 2 drafter.

    Attributes:
        num_layers, hidden_size, intermediate_size, vocab_size: as in its config.json.
        num_heads, num_kv_heads, head_dim: of its attention.
        context_max, sliding_window: tokens.
        rope_theta: base of the rotary frequencies.
        block_size: rows of a block, the anchor included.
        mask_token_id: fills a block; it may lie beyond the tokenizer's tokens.
        feature_layers: target layers whose outputs the drafter reads.
        conv_taps, conv_group_size: of the convolutions.
        selector_rank, selector_top_k: of the candidate selector.
    """

    num_layers: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    num_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 128
    context_max: int = 262144
    sliding_window: int = 2048
    rope_theta: int = 10_000_000
    block_size: int = 8
    mask_token_id: int
    feature_layers: tuple[int, ...]
    conv_taps: int = 2
    conv_group_size: int = 16
    selector_rank: int = 256
    selector_top_k: int = 16

    @property
    def attention_width(self) -> int:
        """Channels of all query heads."""
        return self.num_heads * self.head_dim

    @property
    def attention_rows(self) -> tuple[int, int, int]:
        """Rows of the query, key and value projection."""
        key_value = self.num_kv_heads * self.head_dim
        return self.attention_width, key_value, key_value

    @property
    def correction_rows(self) -> int:
        """Corrections a convolution predicts: before and after, per tap and group."""
        return 2 * self.conv_taps * (self.hidden_size // self.conv_group_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionGeometry:
    """The vision tower; splashpy packs its file and never runs it.

    Attributes:
        depth: blocks.
        width: channels.
        patch_values: numbers of one patch: channels, frames and pixels.
        positions: rows of the position table.
        intermediate_size: channels inside an MLP.
        stored_intermediate_size: the same, padded with zeros.
        merged_width: channels of merged patches.
        out_width: channels of the target.
    """

    depth: int
    width: int
    patch_values: int
    positions: int
    intermediate_size: int
    stored_intermediate_size: int
    merged_width: int
    out_width: int
