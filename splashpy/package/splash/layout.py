# SPDX-License-Identifier: Apache-2.0
"""Which tensors each file of a Splash package holds, in which order and encoding.

A file has no table of its sections: order and sizes follow from the format. Every
section starts at the next multiple of 16384 bytes after the one before, the first one
at 16384.

Tensor names are those of the MLX checkpoint. One differs: ``linear_attn.decay`` is
stored in place of ``linear_attn.A_log``; see ``decay.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from splashpy.package.splash import formats
from splashpy.package.splash.formats import ALIGNMENT, GROUP_SIZE, SplashFormat
from splashpy.package.splash.geometry import DraftGeometry, Experts, TargetGeometry

HEADER_BYTES = 16

TARGET_PREFIX = "language_model."
_GDN, _ATTENTION, _HEAD = 0, 1, 2
_DRAFT_LAYER, _DRAFT_MODEL = 0, 1

ITEM_BYTES = {"BF16": 2, "F32": 4, "U32": 4}


@dataclass(frozen=True, slots=True)
class Plain:
    """A tensor stored as it is, row-major.

    Attributes:
        tensor: its name.
        dtype: ``BF16``, ``F32`` or ``U32``.
        shape: of the tensor.
        stored: shape in the file, filled with zeros; None where it is the same.
    """

    tensor: str
    dtype: str
    shape: tuple[int, ...]
    stored: tuple[int, ...] | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of the section."""
        return math.prod(self.stored or self.shape) * ITEM_BYTES[self.dtype]

    def tensors(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Name to dtype and shape of what the section holds."""
        return {self.tensor: (self.dtype, self.shape)}


@dataclass(frozen=True, slots=True)
class Packed:
    """Quantized matrices in tiles of 256 rows and 64 columns.

    Attributes:
        parts: (module, rows), stacked in this order; rows of zeros fill the last tile.
        columns: input channels.
        bits: 4 or 8.
        experts: such matrices back to back; 0 when the tensors have no such axis.
    """

    parts: tuple[tuple[str, int], ...]
    columns: int
    bits: int = 4
    experts: int = 0

    @property
    def live_rows(self) -> int:
        """Rows that are not padding."""
        return sum(rows for _, rows in self.parts)

    @property
    def rows(self) -> int:
        """Rows of one matrix in the file."""
        return formats.padded_rows(self.live_rows)

    @property
    def matrix_bytes(self) -> int:
        """Bytes of one matrix: codes, then a scale and a bias for each group."""
        codes = self.rows * self.columns * self.bits // 8
        return codes + 2 * 2 * self.rows * self.columns // GROUP_SIZE

    @property
    def num_bytes(self) -> int:
        """Bytes of the section."""
        return max(self.experts, 1) * self.matrix_bytes

    def tensors(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Name to dtype and shape of what the section holds."""
        words, groups = self.columns * self.bits // 32, self.columns // GROUP_SIZE
        lead = (self.experts,) if self.experts else ()
        found = {}
        for module, rows in self.parts:
            found[f"{module}.weight"] = ("U32", (*lead, rows, words))
            found[f"{module}.scales"] = ("BF16", (*lead, rows, groups))
            found[f"{module}.biases"] = ("BF16", (*lead, rows, groups))
        return found


Section = Plain | Packed


@dataclass(frozen=True, slots=True)
class FileLayout:
    """One file.

    Attributes:
        path: in the package.
        magic: first eight bytes.
        layer, kind: the two numbers after it.
        sections: in order.
    """

    path: str
    magic: bytes
    layer: int
    kind: int
    sections: tuple[Section, ...]

    @property
    def num_bytes(self) -> int:
        """Size of the file."""
        end = HEADER_BYTES
        for offset, section in self.placed():
            end = offset + section.num_bytes
        return aligned(end)

    def placed(self) -> Iterator[tuple[int, Section]]:
        """Offset in bytes and section, in order."""
        position = HEADER_BYTES
        for section in self.sections:
            start = aligned(position)
            yield start, section
            position = start + section.num_bytes

    def tensors(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Name to dtype and shape of everything in the file."""
        return {
            name: entry
            for section in self.sections
            for name, entry in section.tensors().items()
        }


def aligned(position: int) -> int:
    """The next multiple of 16384."""
    return -(-position // ALIGNMENT) * ALIGNMENT


def target_files(row: SplashFormat) -> list[FileLayout]:
    """The target's files: layers, head, embedding."""
    layers = range(row.target.num_layers)
    return [*(target_layer(row, n) for n in layers), target_head(row), embedding(row)]


def target_layer(row: SplashFormat, layer: int) -> FileLayout:
    """``target/layer-N.bin``."""
    target = row.target
    prefix = f"{TARGET_PREFIX}model.layers.{layer}."
    mixer = _attention if target.attends(layer) else _gdn
    return FileLayout(
        f"target/layer-{layer}.bin",
        row.layer_magic,
        layer,
        _ATTENTION if target.attends(layer) else _GDN,
        (
            _vector(f"{prefix}input_layernorm.weight", target.hidden_size),
            *mixer(prefix, target),
            _vector(f"{prefix}post_attention_layernorm.weight", target.hidden_size),
            *_feed_forward(f"{prefix}mlp.", target),
        ),
    )


def target_head(row: SplashFormat) -> FileLayout:
    """``target/head.bin``: the final norm and the rows that make logits."""
    target = row.target
    head = f"{TARGET_PREFIX}lm_head", target.vocab_size
    return FileLayout(
        "target/head.bin",
        row.head_magic,
        target.num_layers,
        _HEAD,
        (
            _vector(f"{TARGET_PREFIX}model.norm.weight", target.hidden_size),
            Packed((head,), target.hidden_size),
        ),
    )


def embedding(row: SplashFormat) -> FileLayout:
    """``target/embedding.bin``: not in tiles, since single rows are read."""
    target = row.target
    module = f"{TARGET_PREFIX}model.embed_tokens"
    groups = target.vocab_size, target.hidden_size // GROUP_SIZE
    return FileLayout(
        "target/embedding.bin",
        formats.EMBEDDING_MAGIC,
        target.vocab_size,
        target.hidden_size,
        (
            Plain(
                f"{module}.weight", "U32", (target.vocab_size, target.hidden_size // 8)
            ),
            Plain(f"{module}.scales", "BF16", groups),
            Plain(f"{module}.biases", "BF16", groups),
        ),
    )


def draft_files(row: SplashFormat) -> list[FileLayout]:
    """The drafter's files: layers, then what surrounds them."""
    layers = range(row.draft.num_layers)
    return [*(draft_layer(row, n) for n in layers), draft_model(row)]


def draft_layer(row: SplashFormat, layer: int) -> FileLayout:
    """``draft/layer-N.bin``."""
    draft, prefix = row.draft, f"layers.{layer}."
    attention = f"{prefix}self_attn."
    queries, keys, values = draft.attention_rows
    wide, inner = draft.hidden_size, draft.intermediate_size
    fused = (
        (f"{attention}q_proj", queries),
        (f"{attention}k_proj", keys),
        (f"{attention}v_proj", values),
    )
    return FileLayout(
        f"draft/layer-{layer}.bin",
        formats.DRAFT_MAGIC,
        layer,
        _DRAFT_LAYER,
        (
            _vector(f"{prefix}input_layernorm.weight", wide),
            *_convolution(f"{prefix}attention_conv.", draft),
            Packed(fused, wide),
            _vector(f"{attention}q_norm.weight", draft.head_dim),
            _vector(f"{attention}k_norm.weight", draft.head_dim),
            _matrix(f"{attention}o_proj", wide, draft.attention_width),
            _vector(f"{prefix}post_attention_layernorm.weight", wide),
            *_convolution(f"{prefix}mlp_conv.", draft),
            _matrix(f"{prefix}mlp.gate_proj", inner, wide),
            _matrix(f"{prefix}mlp.up_proj", inner, wide),
            _matrix(f"{prefix}mlp.down_proj", wide, inner),
        ),
    )


def draft_model(row: SplashFormat) -> FileLayout:
    """``draft/model.bin``: input projection, norms and the candidate selector."""
    draft, selector = row.draft, "candidate_selector."
    codebook = draft.vocab_size, draft.selector_rank
    features = len(draft.feature_layers) * draft.hidden_size
    return FileLayout(
        "draft/model.bin",
        formats.DRAFT_MAGIC,
        draft.num_layers,
        _DRAFT_MODEL,
        (
            _matrix("fc", draft.hidden_size, features),
            _vector("hidden_norm.weight", draft.hidden_size),
            _vector("norm.weight", draft.hidden_size),
            _matrix(
                f"{selector}hidden_projection", draft.selector_rank, draft.hidden_size
            ),
            Plain(f"{selector}predecessor_codebook", "BF16", codebook),
            Plain(f"{selector}successor_codebook", "BF16", codebook),
        ),
    )


def _gdn(prefix: str, target: TargetGeometry) -> tuple[Section, ...]:
    gdn, heads = f"{prefix}linear_attn.", target.gdn_value_heads
    names = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
    fused = tuple(
        (f"{gdn}{name}", rows)
        for name, rows in zip(names, target.gdn_rows, strict=True)
    )
    taps = target.conv_channels, target.conv_taps, 1
    return (
        Packed(fused, target.hidden_size),
        Plain(f"{gdn}conv1d.weight", "BF16", taps),
        Plain(f"{gdn}decay", "F32", (heads,)),
        _vector(f"{gdn}dt_bias", heads),
        _vector(f"{gdn}norm.weight", target.gdn_head_dim),
        _matrix(f"{gdn}out_proj", target.hidden_size, target.gdn_width),
    )


def _attention(prefix: str, target: TargetGeometry) -> tuple[Section, ...]:
    attention = f"{prefix}self_attn."
    names = ("q_proj", "k_proj", "v_proj")
    fused = tuple(
        (f"{attention}{name}", rows)
        for name, rows in zip(names, target.attention_rows, strict=True)
    )
    return (
        Packed(fused, target.hidden_size),
        _vector(f"{attention}q_norm.weight", target.head_dim),
        _vector(f"{attention}k_norm.weight", target.head_dim),
        _matrix(f"{attention}o_proj", target.hidden_size, target.attention_width),
    )


def _feed_forward(mlp: str, target: TargetGeometry) -> tuple[Section, ...]:
    wide = target.hidden_size
    if target.experts is None:
        return _gated(mlp, wide, target.intermediate_size)
    return _mixture(mlp, wide, target.experts)


def _mixture(mlp: str, wide: int, experts: Experts) -> tuple[Section, ...]:
    inner, count = experts.intermediate_size, experts.count
    switch, shared = f"{mlp}switch_mlp.", f"{mlp}shared_expert."
    return (
        Packed(((f"{mlp}gate", count),), wide, bits=8),
        *_gated(switch, wide, inner, experts=count),
        *_gated(shared, wide, experts.shared_intermediate_size),
        Packed(((f"{mlp}shared_expert_gate", 1),), wide, bits=8),
    )


def _gated(mlp: str, wide: int, inner: int, experts: int = 0) -> tuple[Section, ...]:
    return (
        Packed(((f"{mlp}gate_proj", inner),), wide, experts=experts),
        Packed(((f"{mlp}up_proj", inner),), wide, experts=experts),
        Packed(((f"{mlp}down_proj", wide),), inner, experts=experts),
    )


def _convolution(conv: str, draft: DraftGeometry) -> tuple[Section, ...]:
    # Two stages: before the layer's work and after it.
    taps = 2, draft.conv_taps, draft.hidden_size
    return (
        Plain(f"{conv}base_kernel", "BF16", taps),
        _matrix(f"{conv}kernel_projection", draft.correction_rows, draft.hidden_size),
    )


def _matrix(module: str, rows: int, columns: int) -> Packed:
    return Packed(((module, rows),), columns)


def _vector(tensor: str, length: int) -> Plain:
    return Plain(tensor, "BF16", (length,))
