# SPDX-License-Identifier: Apache-2.0
"""Random requests in an engine, each compared with the same request alone.

Lengths, samplers, seeds, penalties, shared beginnings, cancels and the moments at which
requests arrive are drawn from one seed; what runs beside what is up to the machine, and
must not matter.
"""

from __future__ import annotations

import json
import queue
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx

from splashpy.drafting.plain import PlainDrafter
from splashpy.engine.engine import Engine, LoadFailed
from splashpy.engine.generation import generate
from splashpy.engine.loading import Loaded, LoadRequest
from splashpy.engine.request import (
    Failed,
    Finished,
    GenerationRequest,
    TokensCommitted,
)
from splashpy.models.target import Target
from splashpy.protocol import LoadOptions
from splashpy.verification.sampling import SamplingParams

AT_A_TIME = 6  # asked for and not ended; four of them run
_SHARED = tuple(i * 7 % 250 for i in range(280))  # a beginning several prompts have
_SAMPLERS = (
    SamplingParams(),
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.7, top_k=12, top_p=0.9),
    SamplingParams(repetition_penalty=1.2),
    SamplingParams(temperature=0.9, frequency_penalty=0.3),
)


@dataclass(slots=True)
class Asked:
    """One request of a soak, and what came of it.

    Attributes:
        request: what was asked.
        leaves_after: tokens after which nobody wants it any more; None waits.
        tokens: the answer.
        end: its last event.
    """

    request: GenerationRequest
    leaves_after: int | None
    tokens: list[int] = field(default_factory=list)
    end: Finished | Failed | None = None


@dataclass(slots=True)
class Report:
    """What a soak found.

    Attributes:
        asked: requests.
        cancelled: of those, left before their end.
        wrong: ids of requests whose text is not that of their solo run.
        memory: bytes MLX held after each tenth of the requests.
    """

    asked: int = 0
    cancelled: int = 0
    wrong: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)

    @property
    def grown(self) -> int:
        """Bytes held more at the end than in the middle."""
        half = len(self.memory) // 2
        return self.memory[-1] - max(self.memory[half:-1], default=self.memory[-1])


def soak(
    model: Path,
    draft: Path | None,
    *,
    count: int,
    seed: int,
    enough: Callable[[], bool] = lambda: False,
) -> Report:
    """Run a soak.

    Args:
        model: directory of a tiny target.
        draft: of a drafter for it, which drafts in every cycle.
        count: requests.
        seed: of everything that is drawn.
        enough: asked before every request; True asks no more.

    Raises:
        RuntimeError: the model does not load.
    """
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engine = Engine(events.put)
    try:
        target = _load(engine, events, model, draft)
        draw = random.Random(seed)
        running: dict[str, Asked] = {}
        done: list[Asked] = []
        report = Report()
        while True:
            while len(running) < AT_A_TIME and report.asked < count and not enough():
                asked = _draw(draw, report.asked)
                report.asked += 1
                running[asked.request.id] = asked
                engine.submit(asked.request)
            if not running:
                break
            _follow(engine, events.get(), running, done)
            if len(done) >= (len(report.memory) + 1) * max(count // 10, 1):
                report.memory.append(mx.get_active_memory())
    finally:
        engine.close()
    report.cancelled = sum(_reason(each) == "cancelled" for each in done)
    report.wrong = [each.request.id for each in done if not _right(each, target)]
    return report


def _load(engine: Engine, events: Any, model: Path, draft: Path | None) -> Target:
    engine.load(
        LoadRequest(
            directory=model,
            config=json.loads((model / "config.json").read_text()),
            context_max=512,
            options=LoadOptions(cache_ram=4 << 20, max_concurrent=4),
            draft=draft,
            paced=False,
        )
    )
    while not isinstance(event := events.get(), Loaded):
        if isinstance(event, LoadFailed):
            raise RuntimeError(str(event.error))
    return event.target


def _draw(draw: random.Random, number: int) -> Asked:
    shared = _SHARED[: draw.choice((0, 0, 0, 260, 280))]
    own = tuple(draw.randrange(250) for _ in range(draw.randint(1, 40)))
    budget = draw.randint(1, 32)
    leaves = draw.randint(0, budget) if draw.random() < 0.15 else None
    request = GenerationRequest(
        id=f"r{number}",
        token_ids=shared + own,
        sampling=draw.choice(_SAMPLERS),
        seed=draw.getrandbits(30),
        seeded=True,
        max_new_tokens=budget,
        stop_token_ids=frozenset(draw.sample(range(250), 2)),
        draft=draw.random() < 0.8,
        foreground=draw.random() < 0.2,
    )
    return Asked(request, leaves)


def _follow(
    engine: Engine, event: Any, running: dict[str, Asked], done: list[Asked]
) -> None:
    asked = running.get(getattr(event, "id", ""))
    if asked is None:
        return
    if isinstance(event, TokensCommitted):
        asked.tokens += event.token_ids
    if isinstance(event, Finished | Failed):
        asked.end = event
        done.append(running.pop(event.id))
    elif asked.leaves_after is not None and len(asked.tokens) >= asked.leaves_after:
        engine.cancel(asked.request.id)


def _reason(asked: Asked) -> str:
    return asked.end.reason if isinstance(asked.end, Finished) else "failed"


def _right(asked: Asked, target: Target) -> bool:
    """Whether the text is the one of a plain run alone, as far as it was wanted."""
    expected: list[int] = []
    plain = PlainDrafter()
    for event in generate(asked.request, target, plain, None, cancelled=lambda: False):
        if isinstance(event, TokensCommitted):
            expected += event.token_ids
    if _reason(asked) == "cancelled":
        return asked.tokens == expected[: len(asked.tokens)]
    return _reason(asked) in ("stop", "length") and asked.tokens == expected
