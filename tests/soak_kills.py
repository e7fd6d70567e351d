# SPDX-License-Identifier: Apache-2.0
"""Random requests at an engine process that is killed while it works on them.

Each is compared with its answer by an engine that nobody kills. Some pass their text on
as it comes, some only when it is whole, and some leave on the way, as HTTP requests do.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from splashpy.client.child import ChildClient
from splashpy.protocol import Cycle, Done, Generate, Load, LoadOptions, Sampling
from splashpy.server.engine import Engine
from splashpy.server.errors import ApiError
from splashpy.server.running import Anew

AT_A_TIME = 6
_PATIENCE = 120.0  # seconds after which something that is awaited will not come
_KILLED_EVERY = 25  # cycles, about


@dataclass(slots=True)
class Killed:
    """What a soak with kills found.

    Attributes:
        ends: requests by how they ended.
        wrong: ids of those whose text is not the beginning of their answer, or not all
            of it though they ended well.
        deaths: engines that were killed.
        replayed: requests that began anew.
    """

    ends: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    deaths: int = 0
    replayed: int = 0


@dataclass(slots=True)
class _Asked:
    command: Generate
    streams: bool
    leaves_after: int | None
    tokens: list[int] = field(default_factory=list)
    end: str = ""


class _Reaper:
    """Kills the engine's process after so many cycles that arrived from it."""

    def __init__(self, engine: Engine, kills: int, draw: random.Random):
        self._engine, self._left, self._draw = engine, kills, draw
        self._next = draw.randint(1, _KILLED_EVERY)
        self._killed = 0

    def count(self) -> None:
        """A cycle arrived."""
        self._next -= 1
        pid = self._engine.vitals.pid
        # What a dead engine had sent still arrives for a while.
        if self._left and self._next <= 0 and pid not in (0, self._killed):
            self._left -= 1
            self._next = self._draw.randint(1, _KILLED_EVERY)
            self._killed = pid
            os.kill(pid, signal.SIGKILL)


def soak_with_kills(
    model: Path, draft: Path, log: Path, *, count: int, kills: int, seed: int
) -> Killed:
    """Run it.

    Args:
        model: directory of a tiny target.
        draft: of a drafter for it.
        log: takes what the processes print.
        count: requests.
        kills: of the engine's process.
        seed: of everything that is drawn.
    """
    options = LoadOptions(draft=str(draft), max_concurrent=4)
    load = Load(model=str(model), name="tiny", options=options)
    return asyncio.run(_soak(load, log, count, kills, random.Random(seed)))


async def _soak(
    load: Load, log: Path, count: int, kills: int, draw: random.Random
) -> Killed:
    engine = Engine(lambda: ChildClient.spawn(log), load)
    engine.start()
    try:
        await engine.until_ready(_PATIENCE)
        every = [_draw(draw, number) for number in range(count)]
        answers = {}
        for each in every:
            name = each.command.id
            plain = replace(each.command, id=f"solo-{name}", draft=False)
            solo = _Asked(plain, streams=False, leaves_after=None)
            await _follow(engine, solo, None)
            answers[name] = solo.tokens
        reaper = _Reaper(engine, kills, draw)
        places = asyncio.Semaphore(AT_A_TIME)

        async def one(asked: _Asked) -> None:
            async with places:
                await _follow(engine, asked, reaper)

        await asyncio.gather(*map(one, every))
    finally:
        await engine.close()
    found = Killed(deaths=engine.restarts.count, replayed=engine.replayed)
    found.ends = dict(Counter(asked.end for asked in every))
    found.wrong = [
        asked.command.id
        for asked in every
        if not _right(asked, answers[asked.command.id])
    ]
    return found


def _draw(draw: random.Random, number: int) -> _Asked:
    budget = draw.randint(1, 40)
    command = Generate(
        id=f"k{number}",
        prompt_ids=tuple(draw.randrange(250) for _ in range(draw.randint(1, 60))),
        sampling=Sampling(
            temperature=draw.choice((0.0, 0.8)),
            repetition_penalty=draw.choice((1.0, 1.2)),
            seed=draw.getrandbits(30),
            ignore_eos=True,
        ),
        max_tokens=budget,
        return_token_ids=True,
    )
    leaves = draw.randint(0, budget) if draw.random() < 0.15 else None
    return _Asked(command, draw.random() < 0.5, leaves)


async def _follow(engine: Engine, asked: _Asked, reaper: _Reaper | None) -> None:
    """One request to its end, as the server follows it."""
    running = engine.generate(asked.command)
    try:
        while not asked.end:
            event = await running.next(_PATIENCE)
            if event is None:
                asked.end = "nothing came"
            elif isinstance(event, Anew):
                asked.tokens.clear()
            elif isinstance(event, Cycle):
                asked.tokens += event.token_ids
                running.told = running.told or (asked.streams and bool(asked.tokens))
                if reaper is not None:
                    reaper.count()
                if asked.leaves_after is not None:
                    left = len(asked.tokens) >= asked.leaves_after
                    asked.end = "left" if left else ""
            elif isinstance(event, Done):
                asked.end = event.reason
    except ApiError as error:
        asked.end = error.code
    running.leave()


def _right(asked: _Asked, answer: list[int]) -> bool:
    begun = asked.tokens == answer[: len(asked.tokens)]
    if asked.end == "length":
        return asked.tokens == answer
    if asked.end == "engine_recovering":  # nothing else may be passed on after it
        return begun and asked.streams and bool(asked.tokens)
    return begun and asked.end in ("left", "engine_failed")
