# SPDX-License-Identifier: Apache-2.0
"""What the engine is asked, and the events that answer it.

Only numbers and strings: these objects leave the engine thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from splashpy.cache.lookup import Lookup
from splashpy.cache.plan import UNMARKED, Marks
from splashpy.errors import SplashError
from splashpy.verification.grammar import Grammar
from splashpy.verification.logprobs import TokenLogprob
from splashpy.verification.reasoning import ReasoningLimit
from splashpy.verification.sampling import SamplingParams

TokenSource = Literal["a", "t", "l"]
"""Accepted draft, the target's own choice, prompt lookup."""

Reason = Literal["stop", "length", "cancelled", "context_full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One prompt to continue.

    Attributes:
        id: chosen by the caller, unique while the request lives.
        token_ids: the prompt; at least one token.
        sampling: how the target's distribution becomes a token.
        seed: base of all random draws.
        seeded: the seed was asked for, so the text must not depend on the drafter.
        max_new_tokens: answer tokens at most; None: what the context leaves.
        stop_token_ids: any of them ends the answer.
        draft: False decodes one token at a time.
        prefill_only: read the prompt, answer nothing.
        grammar: what the answer must follow, at its beginning; None leaves it free.
        reasoning: how long it may reason; None: as long as it likes.
        marks: places of the prompt that other prompts may share.
        foreground: runs before requests that wait.
        logprobs: report how likely every token was, with so many alternatives; None
            reports nothing.
        logprobs_drawn: these are of what tokens were drawn from.
        prompt_logprobs: the same for the tokens of the prompt, which is read as a
            whole for it.
    """

    id: str
    token_ids: tuple[int, ...]
    sampling: SamplingParams
    seed: int
    seeded: bool = False
    max_new_tokens: int | None = None
    stop_token_ids: frozenset[int] = frozenset()
    draft: bool = True
    prefill_only: bool = False
    grammar: Grammar | None = None
    reasoning: ReasoningLimit | None = None
    marks: Marks = UNMARKED
    foreground: bool = False
    logprobs: int | None = None
    logprobs_drawn: bool = False
    prompt_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """``position`` requests are before this one."""

    id: str
    position: int


@dataclass(frozen=True, slots=True)
class LookedUp:
    """What earlier requests had for this one."""

    id: str
    found: Lookup


@dataclass(frozen=True, slots=True)
class SetAside:
    """Memory was refused: a text of ``tokens`` tokens gave up ``held`` bytes.

    It goes on later as if nothing had been.
    """

    id: str
    tokens: int
    held: int


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """``processed`` of ``total`` prompt tokens are read, ``cached`` were restored.

    ``logprobs`` are of the tokens read since the last one, where they were asked for.
    """

    id: str
    total: int
    cached: int
    processed: int
    elapsed_seconds: float
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class TokensCommitted:
    """What one cycle committed; ``cycle`` 0 is the token the prefill produced.

    ``at`` is the engine thread's ``perf_counter`` when the tokens were read; ``by`` is
    who drafted, the target itself in a plain step; ``cost`` is what the cycle was
    expected to take, in plain steps; ``logprobs`` has an entry per token where they
    were asked for.
    """

    id: str
    cycle: int
    token_ids: tuple[int, ...]
    sources: tuple[TokenSource, ...]
    drafted: int
    accepted: int
    draft_seconds: float
    verify_seconds: float
    at: float
    by: TokenSource = "t"
    cost: float = 1.0
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The request ended; nothing about it follows.

    Attributes:
        id: the request.
        reason: why.
        prompt_tokens: tokens of the prompt.
        cached_tokens: of those, restored instead of computed.
        queue_seconds: accepted to started.
        prefill_seconds: started to first token.
        mask_seconds: spent on what a grammar allows, while the target computed.
    """

    id: str
    reason: Reason
    prompt_tokens: int
    cached_tokens: int
    queue_seconds: float
    prefill_seconds: float
    mask_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Failed:
    """The request failed; ``fatal`` means the engine is no longer sound."""

    id: str
    error: SplashError
    fatal: bool = False


EngineEvent = (
    Waiting
    | LookedUp
    | SetAside
    | PrefillProgress
    | TokensCommitted
    | Finished
    | Failed
)
