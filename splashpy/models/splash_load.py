# SPDX-License-Identifier: Apache-2.0
"""Target and drafter straight out of a Splash package, without a conversion.

A section of a file becomes arrays and is let go before the next one is read, so memory
holds the model and one section.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.utils import _get_classes

from splashpy.models.arrays import to_mlx
from splashpy.package.splash.formats import GROUP_SIZE
from splashpy.package.splash.package import SplashPackage
from splashpy.package.splash.reading import draft_tensors, target_tensors


def read_splash_target(directory: Path, config: dict[str, Any]) -> nn.Module:
    """mlx-lm's model with the weights of a package.

    Args:
        directory: of the package.
        config: what :meth:`SplashPackage.target_config` gives.

    Raises:
        IntegrityError: a file is damaged.
        ValueError: the tensors are not those of the model.
    """
    model_class, args_class = _get_classes(config)
    model = model_class(args_class.from_dict(copy.deepcopy(config)))
    packed = config["quantization"]

    def packing(path: str, module: nn.Module) -> bool | dict[str, Any]:
        return hasattr(module, "to_quantized") and packed.get(path, True)

    nn.quantize(model, GROUP_SIZE, packed["bits"], class_predicate=packing)
    tensors = target_tensors(SplashPackage.open(directory))
    weights = [(name, to_mlx(tensor)) for name, tensor in tensors]
    model.load_weights(weights, strict=True)
    model.eval()
    return model


def read_splash_draft_config(directory: Path) -> dict[str, Any]:
    """config.json of the drafter of a package."""
    return SplashPackage.open(directory).draft_config()


def read_splash_draft(directory: Path) -> dict[str, mx.array]:
    """The drafter's tensors by published name."""
    tensors = draft_tensors(SplashPackage.open(directory))
    return {name: to_mlx(tensor) for name, tensor in tensors}
