# SPDX-License-Identifier: Apache-2.0
"""What must be equal for stored rows to be the rows this model would compute.

Rows are found by token ids below a *namespace*; anything that could make the same
tokens give other numbers is part of it. Names of models are not, and neither are
tokenizer and template: they decide which tokens there are, nothing else.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from splashpy.cache.chain import BLOCK

CACHE_FORMAT = 1
"""Version of the records on disk."""

NUMERICS = 1
"""Raised whenever a forward pass of this program changes what it computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """Identity of a target's rows.

    Attributes:
        weights: identity of the weights and their configuration.
        model_type: architecture name.
        kv: how full attention keeps its rows.
        dtype: of activations.
        device: generation of the processor, and the BLAS where there is one.
        mlx: version of mlx, major and minor.
        mlx_lm: version of mlx-lm, whose layers compute.
    """

    weights: str
    model_type: str
    kv: str
    dtype: str
    device: str
    mlx: str
    mlx_lm: str

    def to_json(self) -> dict[str, Any]:
        """Everything that is hashed."""
        fixed = {"format": CACHE_FORMAT, "numerics": NUMERICS, "block": BLOCK}
        return asdict(self) | fixed

    @property
    def digest(self) -> bytes:
        """32 bytes that no other namespace has."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).digest()


def draft_namespace(target: bytes, drafter: str) -> bytes:
    """Identity of a drafter's context: the target's namespace and the drafter's own.

    Args:
        target: digest of the target's namespace.
        drafter: identity of its weights, its layers, its window and its format.
    """
    return hashlib.sha256(target + drafter.encode()).digest()
