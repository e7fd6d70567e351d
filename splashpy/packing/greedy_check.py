# SPDX-License-Identifier: Apache-2.0
"""A smoke test for a package: a fixed prompt, continued greedily by plain mlx-lm.

The tokens are recorded in the manifest. Another device may round a near-tie the other
way, so a difference there is a hint and no proof of damage.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model
from tokenizers import Tokenizer

from splashpy.errors import ModelKindError
from splashpy.models.loading import to_float32
from splashpy.package.manifest import Check
from splashpy.package.progress import Cancelled, CancelledError


def check_target(
    directory: Path, prompt: str, count: int, cancelled: Cancelled
) -> Check | None:
    """Load ``target/`` with mlx-lm and continue a prompt.

    Args:
        directory: package with ``target/`` and ``tokenizer/``.
        prompt: text, encoded without a chat template.
        count: tokens to produce; 0 gives None.
        cancelled: polled before each token.

    Raises:
        ModelKindError: mlx-lm does not load it, or it computes no numbers.
        CancelledError: ``cancelled`` said yes.
    """
    if count == 0:
        return None
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer" / "tokenizer.json"))
    prompt_ids = tokenizer.encode(prompt).ids
    try:
        model: Any = load_model(directory / "target", lazy=True)[0]
    except (ValueError, TypeError, KeyError) as error:
        raise ModelKindError(
            f"{directory.name}: mlx-lm does not load the target", why=str(error)
        ) from None
    if mx.default_device() == mx.cpu:
        to_float32(model)  # packed weights take minutes per token on a CPU
    cache, pending = make_prompt_cache(model), prompt_ids
    token_ids: list[int] = []
    while len(token_ids) < count:
        if cancelled():
            raise CancelledError
        logits = model(mx.array([pending]), cache=cache)[0, -1]
        if not mx.all(mx.isfinite(logits)):
            raise ModelKindError(f"{directory.name}: the target computes no numbers")
        pending = [int(mx.argmax(logits))]
        token_ids += pending
    device = "cpu" if mx.default_device() == mx.cpu else "metal"
    return Check(
        prompt_token_ids=tuple(prompt_ids), token_ids=tuple(token_ids), device=device
    )
