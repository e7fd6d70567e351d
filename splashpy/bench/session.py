# SPDX-License-Identifier: Apache-2.0
"""A loaded model whose parts can be used directly, on the thread that loaded it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from splashpy.drafting.drafter import Drafter
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine import calibration
from splashpy.engine.accounts import lane_size, open_ledger
from splashpy.engine.generation import generate
from splashpy.engine.lane_claim import LaneClaim
from splashpy.engine.loading import Loaded, LoadRequest, load
from splashpy.engine.memory_ledger import MemoryLedger
from splashpy.engine.pressure import pressure
from splashpy.engine.request import EngineEvent, GenerationRequest, TokensCommitted
from splashpy.engine.wired import WiredWeights, this_machine
from splashpy.host.device import memory_bytes
from splashpy.host.model import Speech
from splashpy.models.target import Target
from splashpy.package.model_directory import ModelDirectory
from splashpy.paths import Paths
from splashpy.protocol import Generate, LoadOptions, LoadProgress
from splashpy.verification.sampling import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How tokens are picked.

    Attributes:
        temperature: 0 is greedy.
        seed: of every draw; the same seed gives the same text, whoever drafts. None
            where nothing is drawn, or where the drafter may choose what is.
        top_k: the most likely tokens that are kept; 0 keeps all.
        top_p: mass of the smallest set that is kept.
        trial: with a temperature and no seed, tells one text from the next.
    """

    temperature: float = 0.0
    seed: int | None = None
    top_k: int = 0
    top_p: float = 1.0
    trial: int = 0

    @property
    def sampling(self) -> SamplingParams:
        """What the engine is asked for."""
        return SamplingParams(
            temperature=self.temperature, top_k=self.top_k, top_p=self.top_p
        )


GREEDY = Draw()


@dataclass(frozen=True, slots=True)
class Answer:
    """What decoding one prompt gave.

    Attributes:
        token_ids: the answer.
        drafted: tokens proposed on the way.
        accepted: proposed tokens that were kept.
    """

    token_ids: tuple[int, ...]
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    """A target, its drafter and its text side; all texts share one ledger.

    Attributes:
        loaded: the model.
        speech: its text side.
        plain: who proposes where nobody is to.
        ledger: of the memory.
        wired: its weights in physical memory, where that was asked for.
    """

    loaded: Loaded
    speech: Speech
    plain: Drafter = field(default_factory=PlainDrafter)
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    wired: WiredWeights | None = None

    @classmethod
    def open(
        cls,
        directory: ModelDirectory,
        options: LoadOptions,
        progress: Callable[[LoadProgress], None] = lambda _: None,
        *,
        paced: bool = False,
        time_again: bool = False,
    ) -> Session:
        """Load a model here and now.

        Args:
            directory: of the model.
            options: wishes about drafting and context.
            progress: of the loading.
            paced: draft where it is expected to pay, as everybody else does; False
                drafts always, since what is drafted is to be proved or counted.
            time_again: time cycles even where their costs are kept.

        Raises:
            SplashError: it cannot be loaded.
        """
        speech = Speech.from_directory(directory, options.max_context)
        context_max = speech.context_max
        request = LoadRequest.of(
            directory,
            options,
            context_max,
            memory_bytes=memory_bytes(),
            paced=paced,
        )
        request = replace(
            request,
            costs_file=Paths.default().state / calibration.FILE,
            time_again=time_again,
        )
        loaded = load(request, progress)
        wired = WiredWeights(this_machine()) if options.wired else None
        if wired:
            weights = loaded.target.facts.weight_bytes
            wired.begin(weights + loaded.draft_bytes, pressure())
        return cls(loaded, speech, ledger=open_ledger(loaded, None), wired=wired)

    @property
    def target(self) -> Target:
        """The model whose words count."""
        return self.loaded.target

    @property
    def drafter(self) -> Drafter:
        """Who proposes."""
        return self.loaded.drafter

    def prompt_ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a user message in the model's chat template."""
        return self.conversation_ids(({"role": "user", "content": text},))

    def conversation_ids(self, messages: tuple[dict[str, Any], ...]) -> tuple[int, ...]:
        """Token ids of a conversation in the model's chat template.

        Raises:
            TemplateError: it cannot be rendered.
        """
        return self.speech.prompt(Generate(id="", messages=messages)).token_ids

    def echo_ids(self, text: str) -> tuple[int, ...]:
        """As :meth:`prompt_ids`, with an answer that begins to repeat the message.

        Every kind of drafter has something to propose there.
        """
        half = self.speech.tokenizer.encode_literal(text)
        return (*self.prompt_ids(text), *half[: max(len(half) // 2, 1)])

    def events(
        self,
        token_ids: tuple[int, ...],
        drafter: Drafter,
        *,
        max_tokens: int,
        draw: Draw = GREEDY,
        cancelled: Callable[[], bool],
    ) -> Iterator[EngineEvent]:
        """Decode from a prompt; the last event is ``Finished``."""
        request = GenerationRequest(
            id="session",
            token_ids=token_ids,
            sampling=draw.sampling,
            seed=draw.trial if draw.seed is None else draw.seed,
            seeded=draw.seed is not None,
            max_new_tokens=max_tokens,
            stop_token_ids=self.speech.tokenizer.eos_token_ids,
        )
        claim = LaneClaim(self.ledger, lane_size(self.loaded))
        yield from generate(
            request, self.target, drafter, None, cancelled=cancelled, claim=claim
        )

    def answer(
        self,
        token_ids: tuple[int, ...],
        drafter: Drafter,
        *,
        max_tokens: int,
        draw: Draw = GREEDY,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Answer:
        """The tokens of :meth:`events`, and how many of them were drafted."""
        cycles = [
            event
            for event in self.events(
                token_ids,
                drafter,
                max_tokens=max_tokens,
                draw=draw,
                cancelled=cancelled,
            )
            if isinstance(event, TokensCommitted)
        ]
        return Answer(
            tuple(token for cycle in cycles for token in cycle.token_ids),
            drafted=sum(cycle.drafted for cycle in cycles),
            accepted=sum(cycle.accepted for cycle in cycles),
        )
