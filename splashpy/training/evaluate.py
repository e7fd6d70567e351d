# SPDX-License-Identifier: Apache-2.0
"""What a drafter is worth: the engine's own loop, beside the trainer's estimate.

Training metrics can look well while decoding gains nothing: a position or a tap off by
one is enough. So every prompt is decoded by the engine, and the same text is then
judged with the training code, block after block from the anchors a decoding would
visit. On the same text both count the same cycles, up to near-ties of rounding. A
larger difference means that training and drafting do not compute the same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.drafter import Drafter
from splashpy.drafting.head import DraftHead
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine.generation import generate
from splashpy.engine.request import GenerationRequest, TokensCommitted
from splashpy.errors import RequestCancelled
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.target import MlxLmTarget
from splashpy.training.batches import candidates, make_batch
from splashpy.training.blocks import BlockEmbedding
from splashpy.training.examples import Example
from splashpy.training.lessons import Lessons
from splashpy.training.loss import accepted, judge
from splashpy.verification.sampling import SamplingParams

TOLERANCE = 0.03
"""Largest relative difference between the engine's count and the estimate."""

_BLOCKS = 32  # judged at once


@dataclass(frozen=True, slots=True)
class Decoded:
    """One prompt decoded with the drafter and without.

    Attributes:
        tokens: tokens committed by cycles; the first token is not among them.
        cycles: verify passes of the engine.
        estimated_cycles: what the training code counts for the same text.
        seconds: decode time with the drafter.
        plain_seconds: decode time without.
    """

    tokens: int
    cycles: int
    estimated_cycles: int
    seconds: float
    plain_seconds: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All prompts together.

    Attributes:
        prompts: per prompt with at least one cycle.
        accept_len: tokens per cycle as the engine decodes, the target's own counted.
        estimate: tokens per cycle by the training code.
        speed_up: plain decode time over decode time with the drafter.
    """

    prompts: tuple[Decoded, ...]
    accept_len: float
    estimate: float
    speed_up: float

    @property
    def difference(self) -> float:
        """The estimate against the engine, relative."""
        return self.estimate / self.accept_len - 1

    @property
    def sound(self) -> bool:
        """Whether training and drafting agree."""
        return abs(self.difference) <= TOLERANCE


@dataclass(frozen=True, slots=True)
class _Run:
    token_ids: list[int]
    cycles: int
    seconds: float


def evaluate(
    network: DFlashNetwork,
    target: MlxLmTarget,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    stops: frozenset[int] = frozenset(),
    cancelled: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Decode prompts greedily, with the drafter and without in turns.

    Args:
        network: the drafter.
        target: its target; taps on it are replaced.
        prompts: token ids, held out from training.
        max_tokens: of every answer.
        stops: tokens that end an answer.
        cancelled: asked between cycles.

    Raises:
        RequestCancelled: ``cancelled`` said so.
        ValueError: no prompt gave a single cycle.
    """
    drafter = DFlash2Drafter(network, target)
    layers = drafter.feature_layers
    decoded: list[Decoded] = []
    for prompt in prompts:
        target.tap(layers)
        drafted = _decode(drafter, target, prompt, max_tokens, stops, cancelled)
        target.tap(())
        plain = _decode(PlainDrafter(), target, prompt, max_tokens, stops, cancelled)
        if not drafted.cycles:
            continue
        text = Example((*prompt, *drafted.token_ids), len(prompt), "")
        estimate = estimate_cycles(network, target, text)
        decoded.append(
            Decoded(
                len(drafted.token_ids) - 1,
                drafted.cycles,
                estimate,
                drafted.seconds,
                plain.seconds,
            )
        )
    if not decoded:
        raise ValueError(f"none of {len(prompts)} prompts gave a cycle")
    tokens = sum(each.tokens for each in decoded)
    return Evaluation(
        tuple(decoded),
        accept_len=tokens / sum(each.cycles for each in decoded),
        estimate=tokens / sum(each.estimated_cycles for each in decoded),
        speed_up=sum(each.plain_seconds for each in decoded)
        / sum(each.seconds for each in decoded),
    )


def estimate_cycles(
    network: DFlashNetwork, target: MlxLmTarget, example: Example
) -> int:
    """Cycles the training code expects for a text that was decoded greedily."""
    counts = accepted_at_every_anchor(network, target, example)
    cycles, at = 0, 0
    while at < len(counts):
        cycles += 1
        at += counts[at] + 1
    return cycles


def accepted_at_every_anchor(
    network: DFlashNetwork, target: MlxLmTarget, example: Example
) -> list[int]:
    """How many drafts would be right after every answer token but the last."""
    config = network.config
    head = DraftHead(target, config.vocab_size, config.frequent_tokens)
    embed = BlockEmbedding(network, target)
    # As the engine reads them, not as they are stored.
    lessons = Lessons(target, config.feature_layers, dtype=network.dtype)
    lesson = lessons.of(example)
    anchors, counts = list(candidates(example)), []
    for first in range(0, len(anchors), _BLOCKS):
        part = anchors[first : first + _BLOCKS]
        batch = make_batch([lesson], [part], config.block_size, width=_BLOCKS)
        judged = judge(network, embed, head, batch)
        found: Any = accepted(judged, batch.supervised)[0].tolist()
        counts += found[: len(part)]
    return counts


def _decode(
    drafter: Drafter,
    target: MlxLmTarget,
    prompt: Sequence[int],
    max_tokens: int,
    stops: frozenset[int],
    cancelled: Callable[[], bool],
) -> _Run:
    request = GenerationRequest(
        id="evaluation",
        token_ids=tuple(prompt),
        sampling=SamplingParams(),
        seed=0,
        max_new_tokens=max_tokens,
        stop_token_ids=stops,
    )
    tokens: list[int] = []
    cycles, began = 0, perf_counter()
    for event in generate(request, target, drafter, None, cancelled=cancelled):
        if isinstance(event, TokensCommitted):
            tokens += event.token_ids
            cycles += event.cycle > 0
            if event.cycle == 0:
                began = perf_counter()
    if cancelled():
        raise RequestCancelled
    return _Run(tokens, cycles, perf_counter() - began)
