# SPDX-License-Identifier: Apache-2.0
"""Random requests in an engine, each compared with the same request alone.

Lengths, samplers, seeds, penalties, grammars, shared beginnings, questions about
probabilities, the phase in which somebody leaves, and when the computer is short of
memory are drawn from one seed; what runs beside what is up to the machine, and must not
matter.
"""

from __future__ import annotations

import itertools
import json
import queue
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx

from splashpy.dialogue.grammars import Grammars
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine.engine import Engine, LoadFailed
from splashpy.engine.generation import generate
from splashpy.engine.loading import Loaded, LoadRequest
from splashpy.engine.memory_watch import LOOK_SECONDS, MemoryWatch
from splashpy.engine.request import (
    Failed,
    Finished,
    GenerationRequest,
    PrefillProgress,
    SetAside,
    TokensCommitted,
)
from splashpy.models.target import Target
from splashpy.protocol import Constraint, LoadOptions, Pressure
from splashpy.verification.grammar import Grammar
from splashpy.verification.logprobs import TokenLogprob
from splashpy.verification.sampling import SamplingParams

AT_A_TIME = 6  # asked for and not ended; four of them run
_SHARED = tuple(i * 7 % 250 for i in range(280))  # a beginning several prompts have
_SAMPLERS = (
    SamplingParams(),
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.7, top_k=12, top_p=0.9),
    SamplingParams(repetition_penalty=1.2),
    SamplingParams(temperature=0.9, frequency_penalty=0.3),
    SamplingParams(presence_penalty=0.5, penalty_window=12),
)
_RULES = (
    Constraint(kind="regex", text="(ab|cd){3,9}[0-9]*;"),
    Constraint(kind="json_schema", text='{"type": "array", "minItems": 3}'),
)
_PHASES = ("queued", "prefill", "suspended")
_STEPS_PER_LOOK = 6  # of the engine, between two looks at a computer


@dataclass(slots=True)
class Asked:
    """One request of a soak, and what came of it.

    Attributes:
        request: what was asked.
        leaves: when nobody wants it any more: after so many tokens, or in a phase;
            None waits.
        tokens: the answer.
        logprobs: of its tokens, where they were asked for.
        left: it was cancelled.
        end: its last event.
    """

    request: GenerationRequest
    leaves: int | str | None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    left: bool = False
    end: Finished | Failed | None = None


@dataclass(slots=True)
class Report:
    """What a soak found.

    Attributes:
        asked: requests.
        cancelled: of those, left before their end, by when that was.
        aside: times a text was set aside.
        wrong: ids of requests whose text is not that of their solo run.
        memory: bytes MLX held after each tenth of the requests.
    """

    asked: int = 0
    cancelled: dict[str, int] = field(default_factory=dict)
    aside: int = 0
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
        target = load(engine, events, model, draft)
        draw = random.Random(seed)
        engine._memory = _short_now_and_then(events, random.Random(seed))
        grammars = compile_rules(model)
        running: dict[str, Asked] = {}
        done: list[Asked] = []
        report = Report()
        while True:
            while len(running) < AT_A_TIME and report.asked < count and not enough():
                asked = draw_request(draw, report.asked, grammars)
                report.asked += 1
                running[asked.request.id] = asked
                engine.submit(asked.request)
                if asked.leaves == "queued":
                    _leave(engine, asked)
            if not running:
                break
            event = events.get()
            report.aside += isinstance(event, SetAside)
            _follow(engine, event, running, done)
            if len(done) >= (len(report.memory) + 1) * max(count // 10, 1):
                report.memory.append(mx.get_active_memory())
    finally:
        engine.close()
    left = [each.leaves for each in done if _reason(each) == "cancelled"]
    phases = (phase if isinstance(phase, str) else "decode" for phase in left)
    report.cancelled = dict(Counter(phases))
    report.wrong = [each.request.id for each in done if not _right(each, target)]
    return report


def load(engine: Engine, events: Any, model: Path, draft: Path | None) -> Target:
    """Load a tiny pair.

    Raises:
        RuntimeError: it does not load.
    """
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


def compile_rules(model: Path) -> list[Grammar]:
    """What answers may be bound to."""
    grammars = Grammars(Tokenizer.from_directory(model))
    return [grammars.compile(rules) for rules in _RULES]


def _short_now_and_then(events: Any, draw: random.Random) -> MemoryWatch:
    """Looks at a computer that is now and then out of memory."""
    ticks = itertools.count()

    def level() -> Pressure:
        return draw.choice(("normal", "normal", "critical", "critical"))

    def clock() -> float:
        return next(ticks) * LOOK_SECONDS / _STEPS_PER_LOOK

    return MemoryWatch(events.put, level, clock, room=lambda: None)


def draw_request(draw: random.Random, number: int, grammars: list[Grammar]) -> Asked:
    """A request, and when nobody wants it any more."""
    shared = _SHARED[: draw.choice((0, 0, 0, 260, 280))]
    own = tuple(draw.randrange(250) for _ in range(draw.randint(1, 40)))
    budget = draw.randint(1, 32)
    leaves = None
    if draw.random() < 0.25:
        leaves = draw.choice((*_PHASES, draw.randint(0, budget)))
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
        grammar=draw.choice(grammars) if draw.random() < 0.2 else None,
        logprobs=draw.choice((None, None, None, 0, 3)),
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
        asked.logprobs += event.logprobs
    if isinstance(event, Finished | Failed):
        asked.end = event
        done.append(running.pop(event.id))
    elif not asked.left and _wants_to_leave(asked, event):
        _leave(engine, asked)


def _wants_to_leave(asked: Asked, event: Any) -> bool:
    if isinstance(asked.leaves, int):
        return len(asked.tokens) >= asked.leaves
    reads = asked.leaves == "prefill" and isinstance(event, PrefillProgress)
    return reads or (asked.leaves == "suspended" and isinstance(event, SetAside))


def _leave(engine: Engine, asked: Asked) -> None:
    asked.left = True
    engine.cancel(asked.request.id)


def _reason(asked: Asked) -> str:
    return asked.end.reason if isinstance(asked.end, Finished) else "failed"


def _right(asked: Asked, target: Target) -> bool:
    """Whether the text is the one of a plain run alone, as far as it was wanted."""
    tokens, logprobs = alone(asked.request, target)
    if _reason(asked) == "cancelled":
        tokens, logprobs = tokens[: len(asked.tokens)], logprobs[: len(asked.logprobs)]
    elif _reason(asked) not in ("stop", "length"):
        return False
    return asked.tokens == tokens and asked.logprobs == logprobs


def alone(
    request: GenerationRequest, target: Target
) -> tuple[list[int], list[TokenLogprob]]:
    """The answer of a plain run alone."""
    tokens: list[int] = []
    logprobs: list[TokenLogprob] = []
    plain = PlainDrafter()
    for event in generate(request, target, plain, None, cancelled=lambda: False):
        if isinstance(event, TokensCommitted):
            tokens += event.token_ids
            logprobs += event.logprobs
    return tokens, logprobs
