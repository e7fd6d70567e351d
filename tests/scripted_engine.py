# SPDX-License-Identifier: Apache-2.0
"""A model that says what it is told, behind the engine's own interface."""

from __future__ import annotations

import json
import queue
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tiny
from server_kit import PATIENCE
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from splashpy.engine.loading import Loaded
from splashpy.engine.request import (
    Failed,
    Finished,
    GenerationRequest,
    PrefillProgress,
    TokensCommitted,
    Waiting,
)
from splashpy.errors import SplashError
from splashpy.protocol import DraftState
from splashpy.verification.logprobs import TokenLogprob

CONTEXT = 4096
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_pad|>")
SPECIAL += ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|file_sep|>")
SPECIAL += ("<|repo_name|>",)
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n# Tools\n{% for tool in tools %}"
    "{{ tool | tojson }}\n{% endfor %}"
    "Call as <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n"
    "</function>\n</tool_call><|im_end|>\n{% endif %}"
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n"
    "{%- if message.reasoning_content %}<think>\n{{ message.reasoning_content }}\n"
    "</think>\n\n{% endif %}{{ message.content }}"
    "{%- for call in message.tool_calls or [] %}\n<tool_call>\n"
    "<function={{ call.function.name }}>\n{% for key in call.function.arguments %}"
    "<parameter={{ key }}>\n{{ call.function.arguments[key] }}\n</parameter>\n"
    "{% endfor %}</function>\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}"
    "<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}{% endif %}"
)
PLAIN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_speaker(
    directory: Path,
    template: str = TEMPLATE,
    context: int = CONTEXT,
    controls: tuple[str, ...] = (),
) -> Path:
    """A model directory whose text side is complete; there are no weights in it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = SPECIAL if template is TEMPLATE else (*SPECIAL[:3], *controls)
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    tokenizer.add_tokens(
        [AddedToken(token, special=False, normalized=False) for token in MARKERS]
    )
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|im_end|>", "chat_template": template})
    )
    config = tiny.config(max_position_embeddings=context)
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    return directory


@dataclass(slots=True)
class Said:
    """What the engine does for one request.

    Attributes:
        steps: a text to commit, a function to wait for or to call, or an error.
        block: tokens of one cycle.
        cached: tokens of the prompt that count as restored.
        prefill: called before the prompt is read.
    """

    steps: tuple[str | Callable[[], object] | SplashError, ...] = ("ok<|im_end|>",)
    block: int = 4
    cached: int = 0
    prefill: Callable[[], object] | None = None


@dataclass(slots=True)
class Script:
    """Answers of the engine, in the order of requests; the last one again and again.

    Attributes:
        choose: asked first; its answer to a request is out of the order.
        overdue: why an engine hangs, asked with every sign of life.
        context: tokens of prompt plus answer.
    """

    answers: list[Said] = field(default_factory=lambda: [Said()])
    requests: list[GenerationRequest] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)
    unanswered: set[str] = field(default_factory=set)
    gate: threading.Event | None = None
    overdue: Callable[[], str] = str
    choose: Callable[[GenerationRequest], Said | None] | None = None
    context: int = CONTEXT

    def begin(self) -> None:
        """Forget everything."""
        self.answers = [Said()]
        self.requests, self.cancelled, self.ended = [], [], []
        self.unanswered = set()
        self.gate = self.choose = None
        self.overdue = str

    def say(self, *texts: Any, **fields: Any) -> None:
        """The next answer."""
        self.answers = [Said(texts, **fields)]

    def take(self, request: GenerationRequest) -> Said:
        """The answer to a request."""
        chosen = self.choose and self.choose(request)
        if chosen:
            return chosen
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class ScriptedEngine:
    """Stands where the host expects its engine."""

    def __init__(self, script: Script, tokenizer: Tokenizer, emit: Callable):
        self._script, self._tokenizer, self._emit = script, tokenizer, emit
        self._jobs: queue.SimpleQueue = queue.SimpleQueue()
        self._cancelled: set[str] = set()
        self._waiting: list[str] = []
        self._closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def load(self, request: Any) -> None:
        self._jobs.put(request)

    def unload(self) -> None: ...

    def submit(self, request: GenerationRequest) -> None:
        self._script.requests.append(request)
        self._script.unanswered.add(request.id)
        position = len(self._waiting)
        self._waiting.append(request.id)
        if position:
            self._emit(Waiting(request.id, position))
        self._jobs.put(request)

    def overdue(self) -> str:
        return self._script.overdue()

    def cancel(self, request_id: str) -> None:
        self._script.cancelled.append(request_id)
        self._cancelled.add(request_id)

    def close(self, timeout: float | None = None) -> None:
        self._closing = True
        self._jobs.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None and not self._closing:
            if not isinstance(job, GenerationRequest):
                if self._script.gate is not None:
                    self._script.gate.wait(PATIENCE)
                self._emit(_loaded(self._script.context))
                continue
            try:
                self._answer(job)
            except SplashError as error:
                self._emit(Failed(job.id, error))
            self._waiting.remove(job.id)
            self._script.unanswered.discard(job.id)

    def _answer(self, request: GenerationRequest) -> None:
        said = self._script.take(request)
        prompt = len(request.token_ids)
        cached = min(said.cached, prompt - 1)
        if said.prefill is not None:
            said.prefill()
        started = time.perf_counter()
        for done in (cached, prompt):
            self._emit(PrefillProgress(request.id, prompt, cached, done, 0.001))
        if request.prompt_logprobs is not None:
            found = ranked(request.token_ids, request.prompt_logprobs)
            first = (TokenLogprob(request.token_ids[0], None), *found[1:])
            self._emit(
                PrefillProgress(request.id, prompt, cached, prompt, 0.001, first)
            )
        reason = "stop" if request.prefill_only else self._speak(request, said)
        self._script.ended.append((request.id, reason))
        spent = time.perf_counter() - started
        self._emit(
            Finished(
                id=request.id,
                reason=reason,
                prompt_tokens=prompt,
                cached_tokens=cached,
                queue_seconds=0.001,
                prefill_seconds=max(spent, 0.001),
            )
        )

    def _speak(self, request: GenerationRequest, said: Said) -> Any:
        cycle, left = 0, request.max_new_tokens or self._script.context
        for step in said.steps:
            if isinstance(step, SplashError):
                raise step
            if not isinstance(step, str):
                step()
                continue
            ids = self._tokenizer.encode(step, add_special_tokens=False).ids
            while ids:
                if request.id in self._cancelled or self._closing:
                    return "cancelled"
                size = 1 if cycle == 0 else said.block
                block, ids = ids[: min(size, left)], ids[min(size, left) :]
                left -= len(block)
                self._commit(request, cycle, block)
                cycle += 1
                if request.stop_token_ids.intersection(block):
                    return "stop"
                if not left:
                    return "length"
        return "cancelled" if request.id in self._cancelled else "length"

    def _commit(self, request: GenerationRequest, cycle: int, block: list[int]) -> None:
        drafted = len(block) - 1 if cycle else 0
        self._emit(
            TokensCommitted(
                id=request.id,
                cycle=cycle,
                token_ids=tuple(block),
                sources=("a",) * drafted + ("t",),
                drafted=drafted,
                accepted=drafted,
                draft_seconds=0.001,
                verify_seconds=0.001,
                at=time.perf_counter(),
                logprobs=()
                if request.logprobs is None
                else ranked(tuple(block), request.logprobs),
            )
        )


def ranked(token_ids: tuple[int, ...], count: int) -> tuple[TokenLogprob, ...]:
    """Numbers that tell of their token: a hundredth of its id, below zero."""
    top = tuple((number, -0.01 * number) for number in range(count))
    return tuple(TokenLogprob(i, -0.01 * i, top) for i in token_ids)


def _loaded(context: int) -> Loaded:
    facts = SimpleNamespace(
        context_max=context, weight_bytes=1, kv_bytes_per_token=1, kv="bf16"
    )
    target: Any = SimpleNamespace(facts=facts)
    drafter: Any = SimpleNamespace(block_size=8)
    return Loaded(target=target, drafter=drafter, draft=DraftState(state="active"))
