# SPDX-License-Identifier: Apache-2.0
"""The README.md of a trained drafter: what it is, and how it came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from splashpy.training.evaluate import Evaluation
from splashpy.training.examples import Example
from splashpy.training.files import write_atomic


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """Facts a reader of a drafter wants.

    Attributes:
        name: of the drafter.
        target: of the model it drafts for.
        licence: SPDX name.
        command: the exact command that trained it.
        steps: updates of the weights.
        examples: the texts it learned from.
        held_out: texts kept from training.
        metrics: the last of the training and of held-out texts.
        evaluation: by the engine; None when it was not run.
    """

    name: str
    target: str
    licence: str
    command: str
    steps: int
    examples: Sequence[Example]
    held_out: Sequence[Example]
    metrics: Mapping[str, float]
    evaluation: Evaluation | None = None


def write_card(card: ModelCard, directory: Path) -> None:
    """Write README.md beside the weights."""
    tokens = sum(len(each.token_ids) - each.start for each in card.examples)
    rows = [f"| `{name}` | {value:.4g} |" for name, value in card.metrics.items()]
    lines = [
        "---",
        f"license: {card.licence}",
        f"base_model: {card.target}",
        "---",
        "",
        f"# {card.name}",
        "",
        f"A DFlash 2 drafter for {card.target}.",
        "",
        "## Data",
        "",
        f"{len(card.examples)} texts with {tokens} answer tokens, written by the "
        f"target itself; {len(card.held_out)} further texts were held out.",
        "",
        "## Training",
        "",
        f"{card.steps} steps:",
        "",
        "```",
        card.command,
        "```",
        "",
        "| metric | last value |",
        "| --- | --: |",
        *rows,
        *_engine_lines(card.evaluation),
        "",
    ]
    write_atomic(directory / "README.md", "\n".join(lines))


def _engine_lines(evaluation: Evaluation | None) -> list[str]:
    if evaluation is None:
        return []
    return [
        "",
        "## In the engine",
        "",
        f"{len(evaluation.prompts)} held-out prompts, greedy: "
        f"{evaluation.accept_len:.2f} tokens per verify pass, the target's own counted "
        f"(the trainer estimates {evaluation.estimate:.2f}); decoding takes "
        f"1/{evaluation.speed_up:.2f} of the time without a drafter.",
    ]
