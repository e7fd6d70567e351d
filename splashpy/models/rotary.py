# SPDX-License-Identifier: Apache-2.0
"""Rotary settings where every model of mlx-lm looks for them.

Newer checkpoints keep them in ``rope_parameters``. Models of mlx-lm that were written
before read ``rope_theta`` and ``rope_scaling`` beside it, and some of them would take
their own default instead: another model, without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BESIDE = ("rope_theta", "partial_rotary_factor")


def rotary_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a config.json says in ``rope_parameters`` only, as older models read it.

    Settings for each kind of layer are left to the models that know them.

    Returns:
        Keys to add to the configuration; empty where it has them already.
    """
    added = _added(config)
    text = config.get("text_config")
    if isinstance(text, Mapping) and (inner := _added(text)):
        added["text_config"] = {**text, **inner}
    return added


def _added(config: Mapping[str, Any]) -> dict[str, Any]:
    settings = config.get("rope_parameters")
    if not isinstance(settings, Mapping):
        return {}
    if any(isinstance(value, Mapping) for value in settings.values()):
        return {}
    wanted = {key: settings[key] for key in _BESIDE if key in settings}
    kind = settings.get("rope_type", settings.get("type", "default"))
    if kind != "default":
        scaling = {key: settings[key] for key in settings if key not in _BESIDE}
        wanted["rope_scaling"] = scaling
    return {key: value for key, value in wanted.items() if config.get(key) is None}
