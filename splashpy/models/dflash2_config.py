# SPDX-License-Identifier: Apache-2.0
"""Facts of a DFlash or DFlash 2 drafter, and whether it fits a target.

``dflash2_parse.py`` reads them from a config.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from splashpy.errors import PairError
from splashpy.models.target import TargetFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How packed matrices are stored.

    Attributes:
        group_size: input channels that share a scale.
        bits: bits of one weight.
        mode: mlx's name of the number format.
        overrides: matrix path -> its own settings, or None where it is not packed.
    """

    group_size: int
    bits: int
    mode: str = "affine"
    overrides: Mapping[str, Quantization | None] | None = None

    def of(self, path: str) -> Quantization | None:
        """The settings of one matrix; None when it is not packed."""
        return (self.overrides or {}).get(path, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class DFlashConfig:
    """Facts of one drafter.

    Attributes:
        version: 1 drafts every slot by itself; 2 adds convolutions and the selector.
        hidden_size: channels, the same as the target's.
        intermediate_size: channels inside an MLP.
        num_layers: decoder layers.
        num_heads, num_kv_heads, head_dim: attention geometry; ``num_heads *
            head_dim`` need not equal ``hidden_size``.
        vocab_size: rows of the codebooks, at most the rows of the target's head.
        rms_norm_eps: added to the mean square.
        max_positions: largest context the drafter was made for.
        rope_theta: base of the rotary frequencies.
        rope_scale: factor on positions; 1 / factor for linear scaling.
        windows: per layer, how many positions back it sees, itself included; None
            sees everything.
        causal: per layer, whether a block row sees only block rows up to itself.
        block_size: rows of a trained block, the anchor included.
        mask_token_id: the token that fills a block after its anchor.
        feature_layers: target layers whose outputs are the features, in order.
        num_target_layers: depth of the target; None when the file does not say.
        conv_kernel_size: taps of the convolutions; 0 in version 1.
        conv_group_size: channels that share a predicted correction; 0 in version 1.
        selector_rank: rank of the codebooks; 0 in version 1.
        selector_top_k: candidates per slot; 0 in version 1.
        input_embedding_scale: factor on block embeddings.
        output_multiplier: factor on draft logits.
        softcap: limit of draft logits after the factor; None without one.
        quantization: how packed matrices are stored; None in a plain file.
        frequent_tokens: ascending ids of the only tokens to draft; None drafts any.
        notes: sentences a person should see, such as an assumed default.
    """

    version: Literal[1, 2]
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    max_positions: int
    rope_theta: float
    rope_scale: float
    windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    block_size: int
    mask_token_id: int
    feature_layers: tuple[int, ...]
    num_target_layers: int | None
    conv_kernel_size: int
    conv_group_size: int
    selector_rank: int
    selector_top_k: int
    input_embedding_scale: float
    output_multiplier: float
    softcap: float | None
    quantization: Quantization | None
    frequent_tokens: tuple[int, ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def conv_groups(self) -> int:
        """Corrections predicted per tap and side."""
        return self.hidden_size // self.conv_group_size

    @property
    def head_rows(self) -> int:
        """Tokens that are drafted, and rows of the head that finds them."""
        frequent = self.frequent_tokens
        return self.vocab_size if frequent is None else len(frequent)

    @property
    def horizon(self) -> int | None:
        """Context rows any layer can still see; None when one sees all."""
        seen = [window - 1 for window in self.windows if window is not None]
        return max(seen) if len(seen) == self.num_layers else None


def check_pair(config: DFlashConfig, target: TargetFacts) -> None:
    """Refuse a drafter that was not made for this target.

    Raises:
        PairError: a size or an id does not fit; the message has both numbers.
    """
    checks = (
        (
            config.hidden_size == target.hidden_size,
            f"its hidden size is {config.hidden_size}, the target's is "
            f"{target.hidden_size}",
        ),
        (
            config.vocab_size <= target.vocab_size,
            f"its vocabulary has {config.vocab_size} tokens, the target's head has "
            f"{target.vocab_size}",
        ),
        (
            config.mask_token_id < target.vocab_size,
            f"its mask token is {config.mask_token_id}, the target's largest token is "
            f"{target.vocab_size - 1}",
        ),
        (
            config.num_target_layers in (None, target.num_layers),
            f"it was made for {config.num_target_layers} target layers, this target "
            f"has {target.num_layers}",
        ),
        (
            max(config.feature_layers) < target.num_layers,
            f"it reads target layer {max(config.feature_layers)}, the target's last "
            f"layer is {target.num_layers - 1}",
        ),
    )
    wrong = [reason for holds, reason in checks if not holds]
    if wrong:
        raise PairError(
            "this drafter does not fit the target",
            why="; ".join(wrong),
            fix=["use the drafter published for this target, or --no-draft"],
        )
