# SPDX-License-Identifier: Apache-2.0
"""What ``splashpy bench`` measures: a model of this machine, or somebody's endpoint.

Alone, questions are asked of a model whose parts are used directly, so that its passes
can be looked into. Where several people ask at once, or another program answers, all
figures are those of a listener.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from splashpy.cli.bench_settings import Settings, engine_wishes
from splashpy.cli.invocation import Invocation
from splashpy.cli.signals import Interrupts
from splashpy.errors import UsageError

if TYPE_CHECKING:
    from splashpy.bench.leg import Leg, Place
    from splashpy.bench.session import Session
    from splashpy.bench.suites import Question
    from splashpy.bench.talker import Talker
    from splashpy.package.library import InstalledModel
    from splashpy.protocol import DraftState


class Runner(Protocol):
    """Asks questions and yields what came of them."""

    def run(
        self, questions: Sequence[Question], done: Collection[Place] = ()
    ) -> Iterator[list[Leg]]:
        """Measure what is not done yet."""
        ...


Prepare = Callable[[float, Callable[[], bool]], Runner]
"""Makes the runner, from the seconds of rest and the wish to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Who is asked.

    Attributes:
        name: of the model.
        facts: what the document says about it.
        prepare: how it is asked.
        session: the model itself; None where only answers are seen.
    """

    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    prepare: Prepare
    session: Session | None = None


@contextlib.contextmanager
def opened(
    invocation: Invocation,
    settings: Settings,
    found: InstalledModel | None,
    interrupts: Interrupts,
) -> Iterator[Subject]:
    """The subject, loaded; ended on leaving the block.

    Args:
        invocation: the call.
        settings: what is to be measured.
        found: the model on this machine; None with ``--url``.
        interrupts: may ask to stop while it is loaded.

    Raises:
        SplashError: it cannot be had.
    """
    if found is None:
        yield _endpoint(invocation, settings)
    elif settings.people == (1,):
        yield _alone(invocation, settings, found, interrupts)
    else:
        with _shared(invocation, settings, found, interrupts) as subject:
            yield subject


def _alone(
    invocation: Invocation,
    settings: Settings,
    found: InstalledModel,
    interrupts: Interrupts,
) -> Subject:
    from splashpy.bench.bench import Bench
    from splashpy.bench.session import Session
    from splashpy.package.model_directory import ModelDirectory

    progress = invocation.progress()
    try:
        session = Session.open(
            ModelDirectory.open(found.path),
            invocation.load_options(),
            interrupts.checked(progress.update),
            paced=True,
        )
    finally:
        progress.close()
    loaded = session.loaded
    _check_drafts(loaded.draft, settings)

    def prepare(cooldown: float, stopping: Callable[[], bool]) -> Bench:
        return Bench(
            session=session,
            arms=settings.arms,
            trials=settings.trials,
            max_tokens=settings.max_tokens,
            draw=settings.draw(),
            cooldown=cooldown,
            stopping=stopping,
        )

    facts = _facts(invocation, found, loaded.draft, loaded.block_size)
    return Subject(name=found.name, facts=facts, prepare=prepare, session=session)


@contextlib.contextmanager
def _shared(
    invocation: Invocation,
    settings: Settings,
    found: InstalledModel,
    interrupts: Interrupts,
) -> Iterator[Subject]:
    """The engine as a server uses it; nothing is kept from one answer to the next."""
    from splashpy.bench.engine_talker import EngineTalker
    from splashpy.client.in_process import InProcessClient
    from splashpy.protocol import Load

    options = replace(invocation.load_options(), prefix_cache=False)
    load = Load(model=str(found.path), name=found.name, options=options)
    progress = invocation.progress()
    with InProcessClient() as client:
        try:
            talker = EngineTalker(client, load, interrupts.checked(progress.update))
        finally:
            progress.close()
        with talker:
            ready = talker.ready
            _check_drafts(ready.draft, settings)
            facts = _facts(invocation, found, ready.draft, ready.block_size)
            prepare = _crowd(talker, settings)
            yield Subject(name=found.name, facts=facts, prepare=prepare)


def _endpoint(invocation: Invocation, settings: Settings) -> Subject:
    from splashpy.bench.endpoint import Endpoint

    given = invocation.given
    endpoint = Endpoint.find(settings.url, given["model"], given["api_key"] or "")
    facts = {
        "url": settings.url,
        "seen": "from outside, by the clock of whoever asks",
    }
    return Subject(name=endpoint.model, facts=facts, prepare=_crowd(endpoint, settings))


def _crowd(talker: Talker, settings: Settings) -> Prepare:
    from splashpy.bench.crowd import Crowd, CrowdArm
    from splashpy.bench.talker import Wish

    draw = settings.draw()

    def prepare(cooldown: float, stopping: Callable[[], bool]) -> Crowd:
        return Crowd(
            talker=talker,
            arms=tuple(
                CrowdArm(arm, people)
                for people in settings.people
                for arm in settings.arms
            ),
            trials=settings.trials,
            wish=Wish(
                max_tokens=settings.max_tokens,
                temperature=draw.temperature,
                top_k=draw.top_k,
                top_p=draw.top_p,
                seed=draw.seed,
            ),
            cooldown=cooldown,
            stopping=stopping,
        )

    return prepare


def _facts(
    invocation: Invocation, found: InstalledModel, draft: DraftState, block_size: int
) -> dict[str, Any]:
    return {
        "revision": found.revision,
        "draft": asdict(draft),
        "block_size": block_size,
        "engine": engine_wishes(invocation),
    }


def _check_drafts(draft: DraftState, settings: Settings) -> None:
    if draft.state == "off" and "draft" in settings.arms:
        raise UsageError(
            "there are no drafts to measure",
            why=f"drafting is off: {draft.reason}",
            fix=["--arms plain measures the target alone", "--draft DIR|REPO"],
        )
