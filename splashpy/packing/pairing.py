# SPDX-License-Identifier: Apache-2.0
"""The drafter that was published for a target somebody named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from splashpy.package.model_directory import ModelDirectory
from splashpy.package.published_drafters import PublishedDrafter, only_drafter
from splashpy.packing.gguf import plan_gguf
from splashpy.packing.inputs import Input
from splashpy.packing.target_plan import PackingWish
from splashpy.packing.terms import card_fields

AUTO = "auto"
"""What a person writes for DRAFT to have it chosen."""


def published_drafter(target: Input) -> PublishedDrafter:
    """Choose by what the target's configuration and its model card say.

    Raises:
        PairError: none fits, or more than one.
        SplashError: the target cannot be read.
    """
    folder = target.path.parent if target.kind == "gguf" else target.path
    base_model = card_fields(folder / "README.md").get("base_model", "")
    return only_drafter(_configuration(target.kind, target.path), base_model)


def _configuration(kind: str, path: Path) -> dict[str, Any]:
    if kind == "gguf":
        return plan_gguf(path, PackingWish()).config
    return ModelDirectory.open(path).config
