# SPDX-License-Identifier: Apache-2.0
"""What ``splashpy train`` did, in words, as JSON, and as an error."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from splashpy.errors import DraftCheckError, SplashError
from splashpy.protocol import error_fields
from splashpy.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from splashpy.training.course import Course, Pace
    from splashpy.training.evaluate import Evaluation


def facts(course: Course) -> list[str]:
    """The texts and the drafter, in a few words."""
    config = course.student.network.config
    taught, held_out = course.taught, course.held_out
    tokens = sum(len(each.token_ids) - each.start for each in taught)
    weights = sum(array.size for array in course.student.weights.values())
    return [
        f"texts: {len(taught):,} with {tokens:,} answer tokens, "
        f"{len(held_out):,} more held out",
        f"drafter: {config.num_layers} layers, {weights / 1e6:.1f} M weights, block "
        f"{config.block_size}, reads target layers "
        f"{', '.join(map(str, config.feature_layers))}",
    ]


def estimate(course: Course, pace: Pace, left: int) -> str:
    """What the steps that are left will cost."""
    plan = course.plan
    blocks = plan.sequences * plan.anchors * plan.accumulation
    return (
        f"{left:,} steps of {blocks:,} blocks: about "
        f"{format_seconds(pace.seconds(left))}, up to {format_bytes(pace.memory)} of "
        "memory beside the target"
    )


def live(metrics: Mapping[str, float], blocks: int) -> str:
    """How well the drafter does, behind the count of steps."""
    return (
        f"τ {metrics['accept_len']:.2f} · loss {metrics['loss']:.2f} · "
        f"recall {metrics['candidate_recall']:.0%} · "
        f"{blocks / metrics['seconds_per_step']:.0f} blocks/s · "
        f"selector {metrics['selector_loss']:.2f}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The end of a run.

    Attributes:
        model: the target's name.
        course: the run.
        steps: done.
        metrics: the last value of each.
        evaluation: by the engine; None when it was not asked for.
        resume: the command that goes on or evaluates again.
    """

    model: str
    course: Course
    steps: int
    metrics: Mapping[str, float]
    evaluation: Evaluation | None
    resume: str

    @property
    def next(self) -> str:
        """What to type now."""
        words = ["splashpy", "run", self.model, "--draft", str(self.course.drafter)]
        return f'{shlex.join(words)} --stats "Name three primary colours."'

    def fault(self) -> SplashError | None:
        """That training and drafting disagree, or None."""
        found = self.evaluation
        if found is None or found.sound:
            return None
        from splashpy.training.evaluate import TOLERANCE

        return DraftCheckError(
            f"the engine accepts {found.accept_len:.2f} tokens a pass, the trainer "
            f"counts {found.estimate:.2f} on the same text",
            why=f"the difference is {found.difference:+.1%}, allowed are "
            f"{TOLERANCE:.0%}; {len(found.prompts)} prompts were decoded",
            fix=[f"{self.resume} --eval-prompts {4 * len(found.prompts)}"],
        )

    def fields(self) -> dict[str, Any]:
        """The JSON document; ``error`` is null where nothing is wrong."""
        course, found, fault = self.course, self.evaluation, self.fault()
        return {
            "model": self.model,
            "drafter": str(course.drafter),
            "block_size": course.student.network.config.block_size,
            "mask_token_id": course.student.network.config.mask_token_id,
            "texts": len(course.taught),
            "held_out": len(course.held_out),
            "steps": self.steps,
            "steps_planned": course.plan.steps,
            "finished": self.steps >= course.plan.steps,
            "metrics": dict(self.metrics),
            "evaluation": found
            and {
                **asdict(found),
                "prompts": len(found.prompts),
                "difference": found.difference,
                "sound": found.sound,
            },
            "next": self.next,
            "error": fault and error_fields(fault),
        }

    def lines(self) -> list[str]:
        """The result for a person."""
        told = [f"drafter  {self.course.drafter}"]
        found, block = self.evaluation, self.course.student.network.config.block_size
        if found is not None:
            count = len(found.prompts)
            prompts = f"{count} held-out prompt{'s' if count > 1 else ''}"
            told += [
                f"τ        {found.accept_len:.2f} in the engine, {found.estimate:.2f} "
                f"by the trainer, on {prompts}: tokens a pass, the target's own "
                f"counted, at most {block}",
                f"speed    {found.speed_up:.2f} times plain decoding",
            ]
        return [*told, f"next     {self.next}"]
