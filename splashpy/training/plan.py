# SPDX-License-Identifier: Apache-2.0
"""Choices of a training run, its learning rate, and the memory it takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from mlx.utils import tree_flatten

from splashpy.errors import CapacityError, UsageError
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.training.loss import Objective
from splashpy.units import format_bytes

# How many float32 arrays of each size live at once, gradients included. Logits count
# with the 64-bit keys that sort the candidates; every convolution keeps its products.
_LOGIT_COPIES = 8
_ROW_COPIES = 64
_MLP_COPIES = 6
_SCORE_COPIES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """What is trained, and how.

    Attributes:
        steps: updates of the weights.
        sequences: texts in a batch.
        anchors: blocks of a text.
        accumulation: batches of one update.
        learning_rate: the largest.
        final_rate: the last learning rate, as a share of the largest.
        warmup: share of the steps in which it rises.
        betas: of AdamW.
        weight_decay: of AdamW.
        clip: largest norm of the gradient.
        objective: the losses.
        frequent_tokens: rows of the head while training; None is all of them.
        only: ``selector`` leaves everything but the selector as it is.
        seed: of the order of texts and of the anchors.
        log_every, checkpoint_every: steps between lines of metrics and checkpoints.
        held_out: share of the conversations that is kept from training.
        held_out_batches: batches of those that are judged at every checkpoint.
    """

    steps: int
    sequences: int = 4
    anchors: int = 12
    accumulation: int = 1
    learning_rate: float = 6e-4
    final_rate: float = 0.1
    warmup: float = 0.04
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    clip: float = 1.0
    objective: Objective = field(default_factory=Objective)
    frequent_tokens: int | None = None
    only: Literal["all", "selector"] = "all"
    seed: int = 42
    log_every: int = 10
    checkpoint_every: int = 200
    held_out: float = 0.05
    held_out_batches: int = 4

    def __post_init__(self) -> None:
        counts = ("sequences", "anchors", "accumulation", "log_every")
        for name in (*counts, "checkpoint_every"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; allowed: 1 or more")
        if self.steps < 0:
            raise UsageError(f"steps is {self.steps}; allowed: 0 or more")

    def rate(self, step: int) -> float:
        """The learning rate of a step: a linear rise, then half a cosine."""
        rise = max(round(self.steps * self.warmup), 1)
        if step < rise:
            return self.learning_rate * (step + 1) / rise
        done = (step - rise) / max(self.steps - rise, 1)
        cosine = 0.5 * (1 + math.cos(math.pi * done))
        return self.learning_rate * (self.final_rate + (1 - self.final_rate) * cosine)


def estimate_memory(
    network: DFlashNetwork,
    plan: TrainingPlan,
    head_rows: int,
    length: int,
    at_once: int = 1,
) -> int:
    """Bytes a step needs beside the target, roughly and rather too many.

    Args:
        network: the drafter.
        plan: of the run.
        head_rows: rows of the head while training.
        length: positions of a batch.
        at_once: batches computed at the same time.
    """
    config = network.config
    flat: Any = tree_flatten(network.parameters())
    weights = 4 * sum(array.nbytes for _, array in flat)  # gradient, two moments
    blocks = plan.sequences * plan.anchors
    rows = blocks * config.block_size
    logits = blocks * (config.block_size - 1) * head_rows * _LOGIT_COPIES
    per_row = _ROW_COPIES * config.hidden_size + _MLP_COPIES * config.intermediate_size
    scores = rows * config.num_heads * (length + config.block_size) * _SCORE_COPIES
    layers = config.num_layers * (rows * per_row + scores)
    context = plan.sequences * length * config.hidden_size
    context *= len(config.feature_layers) + 2 + config.num_layers
    return weights + 4 * at_once * (logits + layers + context)


def check_memory(needed: int, limit: int) -> None:
    """Refuse a plan that does not fit.

    Raises:
        CapacityError: it needs more than ``limit`` bytes.
    """
    if needed > limit:
        raise CapacityError(
            f"training needs about {format_bytes(needed)} beside the target",
            why=f"{format_bytes(limit)} are allowed",
            fix=[
                "take fewer anchors or sequences, with more accumulation",
                "train with the most frequent tokens only",
            ],
        )
