# SPDX-License-Identifier: Apache-2.0
"""What the chat is told about the models on this machine."""

from __future__ import annotations

from typing import Any

import pytest

from splashpy.cli.offers import free_memory, kv_per_token, offers
from splashpy.package.names import KNOWN
from splashpy.paths import Paths


@pytest.mark.parametrize(
    ("config", "size"),
    [
        # SmolLM2-135M: 30 layers, 3 heads of 64, keys and values in two bytes.
        (
            {
                "num_hidden_layers": 30,
                "num_key_value_heads": 3,
                "num_attention_heads": 9,
                "hidden_size": 576,
            },
            30 * 3 * 64 * 2 * 2,
        ),
        (
            {
                "num_hidden_layers": 8,
                "num_attention_heads": 4,
                "head_dim": 16,
                "full_attention_interval": 4,
            },
            2 * 4 * 16 * 2 * 2,
        ),
        (
            {
                "text_config": {
                    "layer_types": ["full_attention", "sliding_attention"],
                    "num_key_value_heads": 2,
                    "head_dim": 8,
                }
            },
            1 * 2 * 8 * 2 * 2,
        ),
        ({}, 0),
        ({"num_hidden_layers": "many", "num_attention_heads": 2, "head_dim": 4}, 0),
    ],
)
def test_the_state_of_a_token_follows_from_the_configuration(
    config: dict[str, Any], size: int
) -> None:
    assert kv_per_token(config) == size


def test_without_models_the_known_ones_are_offered(tmp_path: Any) -> None:
    found = offers(Paths.under(tmp_path))

    assert {offer.name for offer in found} >= {known.name for known in KNOWN}
    free = free_memory()
    assert free is None or free > 0
