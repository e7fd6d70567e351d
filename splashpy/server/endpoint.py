# SPDX-License-Identifier: Apache-2.0
"""What all requests share: settings, the engine, who is admitted, what is counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from splashpy.protocol import Generate, Sampling
from splashpy.server.engine import Engine
from splashpy.server.errors import ApiError
from splashpy.server.metrics import Metrics
from splashpy.server.outcome import Outcome
from splashpy.server.settings import ServerSettings
from splashpy.version import __version__


@dataclass(slots=True)
class Endpoint:
    """The state of one server.

    Attributes:
        settings: wishes of the person who started it.
        engine: answers requests.
        now: seconds since 1970, for the times answers carry.
        metrics: counts.
        log: takes one line for each request; None keeps none.
        active: requests admitted and not ended.
        draining: no request is admitted any more.
        started_at: when, in seconds of ``time.perf_counter``.
    """

    settings: ServerSettings
    engine: Engine
    now: Callable[[], float]
    metrics: Metrics = field(default_factory=Metrics)
    log: Callable[[str], None] | None = None
    active: int = 0
    draining: bool = False
    started_at: float = field(default_factory=time.perf_counter)
    last: dict[str, Any] = field(default_factory=dict)

    @property
    def created(self) -> int:
        """The present as whole seconds since 1970."""
        return int(self.now())

    @property
    def fingerprint(self) -> str:
        """What answered: version and files of the model."""
        return f"splashpy-{__version__}-{self.settings.package_hash or 'unpackaged'}"

    @property
    def lanes(self) -> int:
        """Requests the engine runs at a time."""
        return self.engine.facts.lanes if self.engine.facts else 1

    @property
    def running(self) -> int:
        """Requests the engine works on."""
        return min(self.active, self.lanes)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return max(0, self.active - self.lanes)

    def admit(self) -> None:
        """Let a request in; ``release`` must follow.

        Raises:
            ApiError: there are too many, or the server shuts down.
        """
        if self.draining:
            raise ApiError("shutting_down", "the server is shutting down")
        if self.active >= self.lanes + self.settings.max_queue:
            self.metrics.add("requests_total", endpoint="any", outcome="rejected")
            raise ApiError(
                "queue_full",
                f"{self.settings.max_queue} requests wait already; try again later",
            )
        self.active += 1

    def release(self) -> None:
        """A request that was let in has ended."""
        self.active -= 1

    def served_model(self, asked: str) -> str:
        """The name an answer carries: the one asked for, if one was.

        Raises:
            ApiError: another model, where that is refused.
        """
        names = self.settings.served_names
        if self.settings.strict_model and asked and asked not in names:
            raise ApiError(
                "model_not_found", f"{asked!r} is not served here; {names[0]!r} is"
            )
        return asked or names[0]

    def sampling(self, asked: Sampling) -> Sampling:
        """What was asked, with the server's defaults where nothing was."""
        defaults = self.settings.sampling
        names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
        names += ("presence_penalty", "frequency_penalty", "penalty_window", "seed")
        values = {
            name: getattr(defaults, name)
            for name in names
            if getattr(asked, name) is None and getattr(defaults, name) is not None
        }
        return replace(asked, **values)

    def effort(self, asked: str | None) -> str | None:
        """The effort meant by a word, or the server's default."""
        word = asked or self.settings.effort
        return dict(self.settings.efforts).get(word, word) if word else None

    def budget(self, asked: int | None) -> int | None:
        """Tokens of an answer at most; None: what the context leaves."""
        most = self.settings.max_output
        if asked is None or most is None:
            return asked or most
        return min(asked, most)

    def reasoning_budget(self, asked: int | None) -> int | None:
        """Tokens of reasoning at most; None: no limit."""
        most = self.settings.max_reasoning
        limits = [limit for limit in (asked, most) if limit is not None]
        return min(limits, default=None)

    def note_request(self, name: str, result: str, outcomes: list[Outcome]) -> None:
        """Count an ended request."""
        self.metrics.add("requests_total", endpoint=name, outcome=result)
        for outcome in outcomes:
            if outcome.done is not None:
                self.metrics.note(outcome.done)
                self.last = self.metrics.describe(outcome.done)
                if self.log is not None:
                    self.log(f"{name} {result} {self.metrics.line(outcome.done)}")


def with_defaults(endpoint: Endpoint, command: Generate) -> Generate:
    """The command with the server's defaults filled in."""
    return replace(
        command,
        sampling=endpoint.sampling(command.sampling),
        effort=endpoint.effort(command.effort),
        max_tokens=endpoint.budget(command.max_tokens),
        reasoning_budget=endpoint.reasoning_budget(command.reasoning_budget),
    )
