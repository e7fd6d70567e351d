# SPDX-License-Identifier: Apache-2.0
"""What became of one request: its text in blocks, its calls, its counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from splashpy.protocol import (
    Cycle,
    Done,
    Event,
    Prefill,
    RankedToken,
    Spec,
    Timing,
    ToolDelta,
    Usage,
)

BlockKind = Literal["reasoning", "text", "call"]


@dataclass(slots=True)
class Block:
    """A run of text of one kind, or one tool call.

    Attributes:
        kind: what it is.
        text: the text; of a call, the JSON of its arguments.
        name: of the called tool.
        call_id: of the call, as the client sees it.
        index: of the call.
        whole: the call's arguments are complete.
        ranked: tokens of the text, where they were asked for.
    """

    kind: BlockKind
    text: str = ""
    name: str = ""
    call_id: str = ""
    index: int = 0
    whole: bool = True
    ranked: list[RankedToken] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """One answer, collected from its events.

    Attributes:
        call_prefix: how ids of calls begin in this dialect.
        blocks: text and calls in the order they were written.
        token_ids: of the answer, where they were asked for.
        ranked: its tokens with their log-probabilities, likewise.
        prompt_ranked: those of the prompt.
        prefill: how far the prompt was read.
        done: the end; None before it.
        limited: the server stopped it, for time or indentation.
        prompt: tells answers to the same prompt from others.
        first_at: when its first tokens came, in seconds of the event loop.
        last_at: when the latest came.
        committed: tokens so far, and those that came first.
        spec: what speculation has done so far.
        begun: something of it was written.
    """

    call_prefix: str = "call_"
    blocks: list[Block] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    ranked: list[RankedToken] = field(default_factory=list)
    prompt_ranked: list[RankedToken] = field(default_factory=list)
    prefill: Prefill | None = None
    done: Done | None = None
    limited: bool = False
    prompt: str = ""
    first_at: float = 0.0
    last_at: float = 0.0
    committed: tuple[int, int] = (0, 0)
    spec: Spec = field(default_factory=Spec)
    begun: bool = False

    def take(self, event: Event, new_id: str = "") -> None:
        """Note an event; ``new_id`` is for a call the model gave no id."""
        if isinstance(event, Cycle):
            self._count(event)
            self.token_ids += event.token_ids
            for piece in event.pieces:
                if piece.channel != "x":
                    self._add(piece.text, reasoning=piece.channel == "r")
            self.ranked += event.logprobs
            self._spread()
        elif isinstance(event, ToolDelta):
            self._add_call(event, new_id)
        elif isinstance(event, Prefill):
            self.prefill = event
            self.prompt_ranked += event.logprobs
        elif isinstance(event, Done):
            self.done = event

    @property
    def content(self) -> str:
        """The answer's text."""
        return "".join(block.text for block in self.blocks if block.kind == "text")

    @property
    def reasoning(self) -> str:
        """The reasoning before and between."""
        return "".join(b.text for b in self.blocks if b.kind == "reasoning")

    @property
    def calls(self) -> list[Block]:
        """The whole calls."""
        return [b for b in self.blocks if b.kind == "call" and b.whole]

    @property
    def shown(self) -> list[Block]:
        """The blocks of an answer that is complete: broken calls left out."""
        return [b for b in self.blocks if b.kind != "call" or b.whole]

    @property
    def finish(self) -> Literal["stop", "length", "tool_calls"]:
        """Why it ended, in OpenAI's words."""
        reason = self.done.reason if self.done else "length"
        if self.limited or reason in ("length", "context_full", "cancelled"):
            return "length"
        return "tool_calls" if reason == "tool_calls" else "stop"

    def call(self, index: int) -> Block:
        """The call of this number."""
        found = (b for b in self.blocks if b.kind == "call" and b.index == index)
        return next(found)

    def _count(self, cycle: Cycle) -> None:
        tokens, first = self.committed
        self.committed = (tokens + cycle.committed, first or cycle.committed)
        self.spec = Spec(
            drafted=self.spec.drafted + cycle.drafted,
            accepted=self.spec.accepted + cycle.accepted,
        )

    def _add(self, text: str, *, reasoning: bool) -> None:
        kind: BlockKind = "reasoning" if reasoning else "text"
        if self.blocks and self.blocks[-1].kind == kind:
            self.blocks[-1].text += text
        else:
            self.blocks.append(Block(kind, text))

    def _spread(self) -> None:
        """Give tokens of the content to the text that is being written."""
        texts = [block for block in self.blocks if block.kind == "text"]
        if not texts or not self.ranked:
            return
        given = sum(len(block.ranked) for block in texts)
        content = [token for token in self.ranked if token.channel == "c"]
        texts[-1].ranked += content[given:]

    def _add_call(self, event: ToolDelta, new_id: str) -> None:
        if event.name:
            block = Block("call", name=event.name, index=event.index, whole=False)
            block.call_id = event.call_id or new_id
            self.blocks.append(block)
            return
        block = self.call(event.index)
        block.text += event.args_delta
        block.whole = event.ended == "whole"


def usage_counts(outcomes: list[Outcome]) -> dict[str, int]:
    """Sums over the answers to one request; the prompt counts once per distinct one.

    Keys: ``prompt``, ``cached``, ``completion``, ``reasoning``, ``drafted``,
    ``accepted``, ``cycles``.
    """
    names = ("prompt", "cached", "completion", "reasoning", "drafted", "accepted")
    counts: dict[str, int] = dict.fromkeys((*names, "cycles"), 0)
    prompts: set[str] = set()
    for outcome in outcomes:
        done = outcome.done
        if done is None:
            continue
        if outcome.prompt not in prompts:
            prompts.add(outcome.prompt)
            counts["prompt"] += done.usage.prompt
            counts["cached"] += done.usage.cached
        counts["completion"] += done.usage.completion
        counts["reasoning"] += done.usage.reasoning
        counts["drafted"] += done.spec.drafted
        counts["accepted"] += done.spec.accepted
        counts["cycles"] += done.spec.cycles
    return counts


def openai_usage(outcomes: list[Outcome]) -> dict[str, Any]:
    """``usage`` of Chat Completions and Completions."""
    counts = usage_counts(outcomes)
    return {
        "prompt_tokens": counts["prompt"],
        "completion_tokens": counts["completion"],
        "total_tokens": counts["prompt"] + counts["completion"],
        "prompt_tokens_details": {"cached_tokens": counts["cached"]},
        "completion_tokens_details": {
            "reasoning_tokens": counts["reasoning"],
            "accepted_prediction_tokens": counts["accepted"],
            "rejected_prediction_tokens": counts["drafted"] - counts["accepted"],
        },
    }


def timings(done: Done) -> dict[str, Any]:
    """``timings`` as llama.cpp reports them; rates are 0 where nothing was timed."""
    usage, timing, spec = done.usage, done.timing, done.spec
    read, first = usage.prompt - usage.cached, timing.first_emission_tokens
    later = max(usage.completion - first, 0)
    found = {
        "cache_n": usage.cached,
        "prompt_n": read,
        "prompt_ms": round(timing.prefill_ms, 3),
        "prompt_per_token_ms": _ratio(timing.prefill_ms, read),
        "prompt_per_second": _ratio(1e3 * read, timing.prefill_ms),
        "predicted_n": usage.completion,
        "predicted_ms": round(timing.decode_ms, 3),
        "predicted_per_token_ms": _ratio(timing.decode_ms, later),
        "predicted_per_second": _ratio(1e3 * later, timing.decode_ms),
    }
    if spec.drafted:
        found |= {"draft_n": spec.drafted, "draft_n_accepted": spec.accepted}
    return found


def timings_so_far(outcome: Outcome) -> dict[str, Any]:
    """``timings`` of an answer that is still being written."""
    prefill = outcome.prefill
    tokens, first = outcome.committed
    done = Done(
        id="",
        reason="length",
        usage=Usage(
            prompt=prefill.total if prefill else 0,
            cached=prefill.cached if prefill else 0,
            completion=tokens,
        ),
        timing=Timing(
            prefill_ms=prefill.elapsed_ms if prefill else 0.0,
            decode_ms=1e3 * (outcome.last_at - outcome.first_at),
            first_emission_tokens=first,
        ),
        spec=outcome.spec,
    )
    return {"timings": timings(done)}


def extension(done: Done) -> dict[str, Any]:
    """The ``splashpy`` object: what speculation and the cache did for this answer.

    ``mean_accepted`` is the acceptance length: tokens per verify pass, the target's own
    one counted. ``tokens`` tells where the answer's tokens came from. ``decisions``
    counts passes by who drafted; ``saved_steps`` and ``regret_steps`` are the plain
    steps that those won and lost.
    """
    spec = done.spec
    found: dict[str, Any] = {
        "cycles": spec.cycles,
        "mean_accepted": round(spec.tau, 4),
        "accept_by_position": list(spec.accepted_per_position),
        "draft_by_position": list(spec.drafted_per_position),
        "decisions": decisions(spec),
        "saved_steps": round(spec.saved, 3),
        "regret_steps": round(spec.regret, 3),
        "queue_ms": round(done.timing.queue_ms, 3),
        "ttft_ms": round(done.timing.ttft_ms, 3),
        "cache": {"hit": done.usage.cached > 0, "tokens": done.usage.cached},
        "tokens": {
            "draft": spec.accepted - spec.looked_up,
            "lookup": spec.looked_up,
            "target": done.usage.completion - spec.accepted,
        },
    }
    if done.valid is not None:
        found["constraint"] = {
            "used": True,
            "valid": done.valid,
            "mask_ms": round(done.timing.mask_ms, 3),
        }
    if done.reasons_anyway:
        found["thinking_unsupported"] = True
    return found


def decisions(spec: Spec) -> dict[str, int]:
    """Verify passes by who drafted; ``plain`` is nobody."""
    return {
        "plain": spec.plain_cycles,
        "drafter": spec.drafter_cycles,
        "lookup": spec.lookup_cycles,
    }


def prompt_progress(prefill: Prefill) -> dict[str, Any]:
    """``prompt_progress`` as llama.cpp reports it."""
    return {
        "total": prefill.total,
        "cache": prefill.cached,
        "processed": prefill.processed,
        "time_ms": round(prefill.elapsed_ms),
    }


def _ratio(amount: float, of: float) -> float:
    return round(amount / of, 3) if of else 0.0
