# SPDX-License-Identifier: Apache-2.0
"""Run the steps of a training, interruptible anywhere.

A step depends on its number and the weights before it, on nothing else. So a run that
was interrupted, by Ctrl-C or by a power cut, goes on from its last checkpoint and
reaches the weights an uninterrupted run reaches: bit for bit on the same machine with
the same BLAS, within rounding elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_map

from splashpy.drafting.head import DraftHead
from splashpy.errors import UsageError
from splashpy.models.target import MlxLmTarget
from splashpy.training.batches import Batches, candidates, padded
from splashpy.training.blocks import Batch, BlockEmbedding
from splashpy.training.checkpoint import Checkpoints
from splashpy.training.examples import Example, digest
from splashpy.training.files import read_json, write_atomic
from splashpy.training.head import frequent_tokens
from splashpy.training.init import Student
from splashpy.training.lessons import Lessons
from splashpy.training.loss import Sums, combine, judge
from splashpy.training.plan import TrainingPlan, check_memory, estimate_memory

_RUN = "run.json"
_METRICS = "metrics.jsonl"
_TIMED_UPDATES = 3

Metrics = dict[str, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        steps: steps done, those of earlier sittings included.
        finished: whether that are all of them.
        metrics: the last line of metrics.
    """

    steps: int
    finished: bool
    metrics: Metrics


class Trainer:
    """Teaches one student.

    Args:
        student: the drafter; its network is changed in place.
        target: whose embedding and head it borrows.
        examples: every text; the plan decides which of them are held out.
        lessons: their features, of the layers the student reads.
        plan: of the run.
        directory: for checkpoints and metrics; a run begun there goes on.
        memory_limit: bytes a step may take; None does not check.

    Raises:
        UsageError: there is nothing to learn from, or the directory holds another run.
        CapacityError: a step needs more memory than allowed.
        InputFileError: the last checkpoint is damaged.
        ValueError: the lessons are not those the student or the plan needs.
    """

    def __init__(  # noqa: PLR0913 - what is taught, with what, how and where
        self,
        student: Student,
        target: MlxLmTarget,
        examples: Sequence[Example],
        lessons: Lessons,
        plan: TrainingPlan,
        directory: Path,
        *,
        memory_limit: int | None = None,
    ):
        self.plan = plan
        self._network = network = student.network
        self._metrics = directory / _METRICS
        _check_lessons(lessons, student, plan)
        taught, held = _split(examples, plan)
        tokens = None
        if plan.frequent_tokens is not None:
            answers = (each.token_ids[each.start :] for each in taught)
            tokens = frequent_tokens(answers, plan.frequent_tokens)
        config = network.config
        self._head = DraftHead(target, config.vocab_size, tokens)
        self._embed = BlockEmbedding(network, target)
        length = padded(max(len(each.token_ids) for each in taught))
        self._streams = _streams(plan.accumulation)
        at_once = len(self._streams)
        self.memory = estimate_memory(network, plan, self._head.rows, length, at_once)
        if memory_limit is not None:
            check_memory(self.memory, memory_limit)
        self._claim(directory, student, taught)
        size = config.block_size
        self._batches = self._batches_of(taught, lessons, size)
        self._held = self._batches_of(held, lessons, size) if held else None
        self._prepare(Checkpoints(directory))

    def run(
        self,
        cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[int, Metrics], None] = lambda *_: None,
    ) -> Outcome:
        """Do the steps that are left; a checkpoint is written at the end.

        Args:
            cancelled: asked before every step.
            progress: called with every line of metrics.
        """
        plan, metrics = self.plan, Metrics()
        sums: Sums = {}
        started, since = perf_counter(), self._step
        while self._step < plan.steps and not cancelled():
            _add(sums, self._update(self._step))
            self._step += 1
            if self._step % plan.log_every == 0 or self._step == plan.steps:
                seconds = (perf_counter() - started) / (self._step - since)
                metrics = {"step": self._step, "seconds_per_step": seconds}
                metrics |= {"learning_rate": plan.rate(self._step - 1)} | _means(sums)
                sums, started, since = {}, perf_counter(), self._step
                self._log(metrics)
                progress(self._step, metrics)
            if self._step % plan.checkpoint_every == 0:
                self._checkpoint()
        if self._step > self._saved:
            self._checkpoint()
        return Outcome(self._step, self._step >= plan.steps, metrics)

    def time_step(self) -> float:
        """Seconds of an update once it is compiled; the weights change.

        The fastest of a few counts: other work on the machine only ever adds time.
        """
        times: list[float] = []
        for _ in range(_TIMED_UPDATES + 1):  # the first one also compiles
            began = perf_counter()
            self._update(0)
            times.append(perf_counter() - began)
        return min(times[1:])

    def validate(self) -> Metrics:
        """Metrics over held-out texts, ``val_`` before each name; {} without any."""
        if self._held is None:
            return {}
        sums: Sums = {}
        for index in range(self.plan.held_out_batches):
            _add(sums, self._judged(*self._held[index])[1])
        return {f"val_{name}": value for name, value in _means(sums).items()}

    def _prepare(self, checkpoints: Checkpoints) -> None:
        plan, network = self.plan, self._network
        if plan.only == "selector":
            network.freeze()
            network.candidate_selector.unfreeze()
        self._optimizer = optim.AdamW(
            plan.learning_rate,
            betas=list(plan.betas),
            weight_decay=plan.weight_decay,
            bias_correction=True,
        )
        self._checkpoints = checkpoints
        self._step = self._saved = checkpoints.restore(network, self._optimizer)
        self._optimizer.init(network.trainable_parameters())
        self._forget_lines_after(self._step)
        weights = [network.state]
        both = [network.state, self._optimizer.state]
        gradient = nn.value_and_grad(network, self._loss)
        # Differentiating puts traced weights into the network; as outputs they are
        # taken out again. A compiled function stays on the stream it was traced on.
        self._workers = [
            (stream, mx.compile(gradient, inputs=weights, outputs=weights))
            for stream in self._streams
        ]
        self._judged = mx.compile(self._loss, inputs=weights)
        self._apply = mx.compile(self._apply_gradient, inputs=both, outputs=both)

    def _loss(self, *arrays: mx.array) -> tuple[mx.array, Sums]:
        batch, objective = Batch(*arrays), self.plan.objective
        judged = judge(
            self._network, self._embed, self._head, batch, objective.distillation
        )
        return combine(judged, batch.supervised, objective)

    def _update(self, step: int) -> Sums:
        plan, total, sums = self.plan, None, Sums()
        for part in range(plan.accumulation):
            batch = self._batches[step * plan.accumulation + part]
            mx.eval(batch)
            turn = part % len(self._workers)
            stream, gradient_of = self._workers[turn]
            with mx.stream(stream):
                (_, found), gradient = gradient_of(*batch)
            _add(sums, found)
            total = gradient if total is None else tree_map(mx.add, total, gradient)
            if turn == len(self._workers) - 1:
                mx.eval(total, sums)
        self._optimizer.learning_rate = mx.array(plan.rate(step))
        self._apply(total)
        mx.eval(self._network.state, self._optimizer.state)
        return sums

    def _apply_gradient(self, gradient: Any) -> None:
        gradient = tree_map(lambda each: each / self.plan.accumulation, gradient)
        clipped, _ = optim.clip_grad_norm(gradient, self.plan.clip)
        self._optimizer.update(self._network, clipped)

    def _batches_of(
        self, examples: Sequence[Example], lessons: Lessons, block_size: int
    ) -> Batches:
        plan = self.plan
        return Batches(
            examples,
            lessons,
            block_size,
            sequences=plan.sequences,
            anchors=plan.anchors,
            seed=plan.seed,
        )

    def _claim(
        self, directory: Path, student: Student, taught: Sequence[Example]
    ) -> None:
        """A directory holds one run: same plan, same texts, same kind of drafter."""
        directory.mkdir(parents=True, exist_ok=True)
        wanted = {
            "plan": asdict(self.plan),
            "texts": digest("".join(each.digest for each in taught)),
            "drafter": student.config,
        }
        wanted = json.loads(json.dumps(wanted))
        path = directory / _RUN
        if not path.exists():
            write_atomic(path, json.dumps(wanted, indent=2) + "\n")
            return
        begun = read_json(path)
        differing = [name for name in wanted if begun.get(name) != wanted[name]]
        if differing:
            raise UsageError(
                f"{directory} holds another run",
                why=f"these differ: {', '.join(differing)}",
                fix=["use the same settings and texts, or a new directory"],
            )

    def _checkpoint(self) -> None:
        self._checkpoints.save(self._step, self._network, self._optimizer)
        self._saved = self._step
        metrics = self.validate()
        if metrics:
            self._log({"step": self._step, **metrics})

    def _log(self, metrics: Metrics) -> None:
        with self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(metrics) + "\n")

    def _forget_lines_after(self, step: int) -> None:
        """Steps after the checkpoint are done again, and logged again."""
        lines = list(_whole_lines(self._metrics))
        kept = [line for line in lines if json.loads(line)["step"] <= step]
        if self._metrics.exists():
            write_atomic(self._metrics, "".join(line + "\n" for line in kept))


def _streams(batches: int) -> list[mx.Stream]:
    """Where the batches of one update are computed.

    A CPU works off a stream in one thread, so two of them use two cores; a GPU is
    filled by one.
    """
    first = mx.default_stream(mx.default_device())
    if mx.default_device() != mx.cpu or batches == 1:
        return [first]
    return [first, mx.new_stream(mx.cpu)]


def _check_lessons(lessons: Lessons, student: Student, plan: TrainingPlan) -> None:
    layers = student.network.config.feature_layers
    if lessons.feature_layers != layers:
        raise ValueError(f"lessons of {lessons.feature_layers}, student reads {layers}")
    if plan.objective.distillation and not lessons.likely:
        raise ValueError("distillation needs lessons with likely tokens")


def _split(
    examples: Sequence[Example], plan: TrainingPlan
) -> tuple[list[Example], list[Example]]:
    usable = [each for each in examples if candidates(each)]
    taught = [each for each in usable if not each.held_out(plan.held_out)]
    if not taught:
        raise UsageError(
            "there is no text to learn from",
            why=f"{len(examples)} texts, {len(usable)} of them with two answer tokens "
            f"or more, all of those held out",
            fix=["write more texts"],
        )
    return taught, [each for each in usable if each.held_out(plan.held_out)]


def _whole_lines(path: Path) -> Iterator[str]:
    """The lines of a file that may end in the middle of one."""
    if path.exists():
        for line in path.read_text("utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                yield line.rstrip("\n")


def _add(sums: Sums, more: Sums) -> None:
    for name, (total, count) in more.items():
        before = sums.get(name, (mx.array(0.0), mx.array(0.0)))
        sums[name] = (before[0] + total, before[1] + count)


def _means(sums: Sums) -> Metrics:
    named: Any = sums.items()
    return {
        name: (total / mx.maximum(count, 1)).item() for name, (total, count) in named
    }
