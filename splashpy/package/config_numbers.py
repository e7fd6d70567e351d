# SPDX-License-Identifier: Apache-2.0
"""Numbers of a config.json that no model has.

mlx divides by some of them where no exception can be raised: a group of no weights ends
the process. They are refused before a model is made.
"""

from __future__ import annotations

from typing import Any

from splashpy.errors import ModelKindError

_SIZES = (
    "hidden_size",
    "intermediate_size",
    "head_dim",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "vocab_size",
)
_MAY_BE_NONE = ("intermediate_size",)  # experts have a size of another name
_PACKING = ("bits", "group_size")
_LARGEST = (1 << 31) - 1  # an axis of an array of mlx


def check_numbers(config: dict[str, Any], where: str) -> None:
    """Refuse sizes that are no size.

    Args:
        config: a target's config.json; the text part of a multimodal one counts too.
        where: the file, for the message.

    Raises:
        ModelKindError: a size or a number of ``quantization`` is not positive, too
            large for an array, or no number; names it.
    """
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        for key in _SIZES:
            # Some models have one for every layer, and what is absent may be null.
            if isinstance(part.get(key), int | float | str):
                _check(part[key], key, where, least=int(key not in _MAY_BE_NONE))
    packed = config.get("quantization")
    if packed is None:
        return
    if not isinstance(packed, dict):
        raise ModelKindError(f"{where}: quantization is {packed!r}, and no object")
    for own in (packed, *packed.values()):
        for key in _PACKING:
            if isinstance(own, dict) and (own is packed or key in own):
                _check(own.get(key), f"quantization {key}", where)


def _check(value: Any, key: str, where: str, *, least: int = 1) -> None:
    if type(value) is not int or not least <= value <= _LARGEST:
        raise ModelKindError(
            f"{where}: {key} is {value!r}", why=f"allowed: {least} to {_LARGEST}"
        )
