# SPDX-License-Identifier: Apache-2.0
"""A chat without a terminal, on an engine that says what a test tells it to."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from textual.pilot import Pilot

from splashpy.chat.app import ChatApp
from splashpy.chat.conversation import Conversation, Machine
from splashpy.chat.keeper import Keeper
from splashpy.chat.screens.chat import ChatScreen
from splashpy.chat.session import Session
from splashpy.chat.settings import ChatSettings
from splashpy.chat.widgets.message import MessageView
from splashpy.chat.widgets.prompt import PromptEditor
from splashpy.client.client import EngineClient
from splashpy.client.replay import ReplayClient, Timed
from splashpy.protocol import (
    Cycle,
    Done,
    DraftState,
    EngineHello,
    Load,
    Piece,
    Prefill,
    Ready,
    Spec,
    Timing,
    Usage,
)

PATIENCE_SECONDS = 90.0
NEVER = 1e6  # seconds into a recording no test waits for


class Script:
    """Writes what a scripted engine says; every event comes at once."""

    never = NEVER

    def started(self, **ready: Any) -> list[Timed]:
        """The answers to Hello and Load."""
        values: dict[str, Any] = {
            "model": "demo",
            "context_max": 1024,
            "block_size": 4,
            "draft": DraftState(state="active"),
        }
        return [
            Timed(0.0, EngineHello(proto=1, version="1", pid=1)),
            Timed(0.0, Ready(**(values | ready))),
        ]

    def prefill(self, processed: int, *, total: int = 100, cached: int = 20) -> Prefill:
        return Prefill(
            id="a", total=total, cached=cached, processed=processed, elapsed_ms=500.0
        )

    def cycle(self, i: int, text: str, *, channel: Any = "c", tokens: int = 1) -> Cycle:
        return Cycle(
            id="a",
            i=i,
            drafted=3 if i else 0,
            accepted=max(tokens - 1, 0),
            committed=tokens,
            draft_ms=1.0,
            verify_ms=9.0,
            pieces=(Piece(text, "t", channel),),
        )

    def done(self, reason: Any = "stop", *, completion: int = 9) -> Done:
        return Done(
            id="a",
            reason=reason,
            usage=Usage(prompt=100, cached=20, completion=completion),
            timing=Timing(ttft_ms=280.0, decode_ms=1000.0, first_emission_tokens=1),
            spec=Spec(cycles=2, drafted=6, accepted=6, tau=4.0),
        )

    def answer(self, *texts: str, request: str = "a") -> list[Timed]:
        """A whole answer, one cycle per text."""
        events = [
            self.prefill(100),
            *(self.cycle(i, text) for i, text in enumerate(texts)),
            self.done(completion=len(texts)),
        ]
        return [Timed(0.0, dataclasses.replace(event, id=request)) for event in events]


@dataclass
class Chat:
    """A chat application driven by a test.

    Attributes:
        engines: recordings, one for each time the chat connects.
        settings: of the session.
        keeper: of the conversation.
        machine: what the conversation may ask.
        resume: id of a saved conversation.
        first_message: sent when the engine is ready.
        size: cells of the terminal.
        connected: how often the chat asked for an engine.
    """

    engines: list[list[Timed] | Callable[[], EngineClient]]
    settings: ChatSettings = field(default_factory=lambda: ChatSettings(remote=True))
    first_message: str | None = None
    size: tuple[int, int] = (100, 30)
    keeper: Keeper | None = None
    resume: str | None = None
    machine: Machine = field(default_factory=Machine)
    connected: int = 0
    pilot: Pilot[None] = field(init=False)
    app: ChatApp = field(init=False)

    def run(self, scenario: Callable[[Chat], Awaitable[None]]) -> None:
        """Start the application, run the scenario in it, end it."""
        conversation = Conversation(
            self._connect,
            Load(model="/models/demo", name="demo"),
            self.settings,
            clock=time.perf_counter,
            time_of_day=lambda: "14:02",
            keeper=self.keeper,
        )
        conversation.machine = self.machine
        draft = conversation.open(self.resume) if self.resume else conversation.unsent()
        self.app = ChatApp(
            conversation,
            self.settings,
            first_message=self.first_message,
            draft=draft,
        )

        async def play() -> None:
            async with self.app.run_test(size=self.size) as pilot:
                self.pilot = pilot
                await self.until(lambda: isinstance(self.app.screen, ChatScreen))
                await scenario(self)

        try:
            asyncio.run(play())
        finally:
            conversation.close()

    def _connect(self) -> EngineClient:
        engine = self.engines[min(self.connected, len(self.engines) - 1)]
        self.connected += 1
        return engine() if callable(engine) else ReplayClient(engine)

    @property
    def session(self) -> Session:
        return self.app.conversation.session

    @property
    def prompt(self) -> PromptEditor:
        return self.app.screen_stack[1].query_one(PromptEditor)

    @property
    def status(self) -> str:
        return self.text_of("StatusLine")

    def text_of(self, selector: str) -> str:
        """What a widget shows, as text."""
        return str(self.app.screen_stack[1].query_one(selector).render())

    @property
    def transcript(self) -> str:
        """Everything the conversation shows, scrolled out of sight or not."""
        views = self.app.screen_stack[1].query(MessageView)
        return "\n".join(view_text(view) for view in views)

    async def until(self, true: Callable[[], object]) -> None:
        """Let the application run until something holds."""
        end = time.perf_counter() + PATIENCE_SECONDS
        while not true():
            assert time.perf_counter() < end, f"waited in vain; shown:\n{self.shown}"
            await asyncio.sleep(0.01)

    async def ready(self) -> None:
        await self.until(lambda: self.session.engine.phase == "ready")

    async def send(self, text: str) -> None:
        """Type a message into the editor and press enter."""
        self.prompt.insert(text)
        await self.pilot.press("enter")

    @property
    def shown(self) -> str:
        return f"{self.transcript}\n{self.status}\n{self.prompt.text}"


def view_text(view: MessageView) -> str:
    return "\n".join(view.render_line(y).text.rstrip() for y in range(view.size.height))


class MakeChat(Protocol):
    """Makes a chat on one recording per connection."""

    def __call__(
        self, *engines: list[Timed] | Callable[[], EngineClient], **options: Any
    ) -> Chat:
        """Make one; ``options`` are the fields of ``Chat``."""
        ...
