# SPDX-License-Identifier: Apache-2.0
"""The text side of a loaded model: tokenizer, template, defaults."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, fields, replace
from typing import Any

from splashpy import protocol
from splashpy.cache.plan import UNMARKED, Marks
from splashpy.dialogue.boundaries import Boundaries
from splashpy.dialogue.channels import ChannelSplitter
from splashpy.dialogue.grammars import Grammars
from splashpy.dialogue.infill import InfillTokens, build_infill, find_tokens
from splashpy.dialogue.prompt import (
    Prompt,
    build_open,
    build_prompt,
    build_raw,
    force,
    reasoning_tags,
)
from splashpy.dialogue.sections import (
    Sections,
    SectionSplitter,
    begun_by,
    find_sections,
)
from splashpy.dialogue.template import ChatTemplate
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.dialogue.tools.formats import ToolFormat, find_format
from splashpy.dialogue.turn import Turn
from splashpy.dialogue.xtml_channels import XtmlSplitter
from splashpy.engine.request import GenerationRequest
from splashpy.errors import ConstraintError, UsageError
from splashpy.host.calls import Calls
from splashpy.package.model_directory import ModelDirectory
from splashpy.protocol import Sampling
from splashpy.verification.grammar import Grammar
from splashpy.verification.reasoning import ReasoningLimit
from splashpy.verification.sampling import SamplingParams

_BAN = -1e9  # added to a logit, leaves no chance to a token
_BRIDGE = "\n"  # between reasoning that is cut short and its end
_ANSWER_ROOM = 1024  # tokens of the answer that reasoning may not use


@dataclass(frozen=True, slots=True)
class Speech:
    """How one model reads and writes text.

    Attributes:
        tokenizer: text to ids and back.
        template: messages to text.
        boundaries: places of a prompt that other prompts share.
        sampling: the package's defaults.
        context_max: tokens of prompt plus answer.
        tool_format: how the model writes tool calls; None where nobody knows.
        infill_tokens: its tokens for filling gaps; None where it has none.
        sections: headers within its answers; None where it has none.
        grammars: what answers may be made to look like.
        calls: how it is made to call tools.
    """

    tokenizer: Tokenizer
    template: ChatTemplate
    boundaries: Boundaries
    sampling: Sampling
    context_max: int
    tool_format: ToolFormat | None = None
    infill_tokens: InfillTokens | None = None
    sections: Sections | None = None
    grammars: Grammars = field(init=False)
    calls: Calls = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "calls", Calls(self.tokenizer, self.tool_format))
        object.__setattr__(self, "grammars", Grammars(self.tokenizer))

    @classmethod
    def from_directory(
        cls, directory: ModelDirectory, max_context: int | None
    ) -> Speech:
        """Read tokenizer and template of a model directory.

        Raises:
            ModelKindError: it has no usable tokenizer.
            UsageError: ``max_context`` exceeds what the model was made for.
        """
        context = directory.context_max
        if max_context is not None and not 1 < max_context <= context:
            raise UsageError(
                f"--max-context {max_context}: this model allows 2 to {context} tokens"
            )
        tokenizer = Tokenizer.from_directory(
            directory.tokenizer, config=directory.config
        )
        template = ChatTemplate.from_directory(directory.tokenizer)
        form = find_format(template.source, tokenizer.controls.__contains__)
        return cls(
            tokenizer,
            template,
            Boundaries(tokenizer, template),
            directory.sampling,
            max_context or context,
            form if template.reads_tools else None,
            find_tokens(tokenizer),
            find_sections(tokenizer.control_id),
        )

    @property
    def effort_levels(self) -> tuple[str, ...]:
        """Reasoning efforts the template understands."""
        return self.template.effort_levels

    @property
    def effort_default(self) -> str:
        """The effort that applies when none is asked for; empty without levels."""
        return self.template.effort.default

    @property
    def reasoning_tags(self) -> tuple[str, ...]:
        """The pair of tags around the model's reasoning; empty when it has none."""
        tags = reasoning_tags(self.tokenizer, self.template)
        return (tags.open, tags.close) if tags else ()

    def prompt(self, command: protocol.Generate | protocol.Count) -> Prompt:
        """Token ids of what a command asks.

        Raises:
            TemplateError: the conversation cannot be rendered.
            UsageError: not exactly one kind of prompt, or one of the wrong form.
        """
        given = (
            command.messages,
            command.prompt is not None,
            command.prompt_ids,
            command.infill,
        )
        if sum(map(bool, given)) != 1:
            raise UsageError("give either messages or one kind of prompt")
        if command.prompt is not None:
            return build_raw(self.tokenizer, command.prompt)
        if command.infill is not None:
            return build_infill(
                self.tokenizer, self.infill_tokens, command.infill, self.context_max
            )
        if command.prompt_ids:
            return self._of_ids(command.prompt_ids)
        return self._conversation(command)

    def marks(self, command: protocol.Generate, prompt: Prompt) -> Marks:
        """The places of a prompt; nothing is known where it is no conversation."""
        if not command.messages:
            return UNMARKED
        return self.boundaries.marks(
            prompt.token_ids, command.messages, command.tools, self._options(command)
        )

    def turn(
        self, command: protocol.Generate, prompt: Prompt, end_ids: frozenset[int]
    ) -> Turn:
        """The text path of the answer; a raw prompt's is content as a whole."""
        return Turn(
            self.tokenizer,
            splitter=self._splitter(command, prompt),
            stops=command.sampling.stop,
            end_ids=end_ids,
            calling=self.calls.reader(command, prompt),
        )

    def _splitter(
        self, command: protocol.Generate, prompt: Prompt
    ) -> ChannelSplitter | SectionSplitter | XtmlSplitter:
        if command.messages and self.sections is not None:
            begun = begun_by(self.sections, prompt.text)
            begun = "call" if self.calls.begun(command, prompt) else begun
            return SectionSplitter(self.sections, begun)
        tags = None
        if command.messages:
            tags = reasoning_tags(self.tokenizer, self.template)
        if tags is not None and tags.words_between:
            return XtmlSplitter(tags.words_between, inside=prompt.opens_reasoning)
        return ChannelSplitter(tags, inside=prompt.opens_reasoning)

    def grammar(self, command: protocol.Generate, prompt: Prompt) -> Grammar | None:
        """What the answer must follow; None where it is free.

        Raises:
            ConstraintError: it cannot be used, or not after this prompt.
        """
        constraint, calls = command.constraint, self.calls.rules(command, prompt)
        if constraint is None and calls is None:
            return None
        after = self._reasoning_end(prompt)
        if calls is not None and self.calls.forced_words(command):
            return self.grammars.compile_calls(calls, after)
        if calls is not None and constraint is None and calls.after_text:
            return self.grammars.compile_calls(calls, after)
        token = self.calls.opening_token(command)
        if constraint is not None:
            tags = reasoning_tags(self.tokenizer, self.template)
            after += tags.begins if tags and after else ()
            return self.grammars.compile(constraint, after, token, calls)
        assert calls is not None
        assert token is not None
        return self.grammars.compile_calls(calls, (*after, token))

    def _reasoning_end(self, prompt: Prompt) -> tuple[int, ...]:
        """The tokens that have to come before the answer proper."""
        if not prompt.opens_reasoning:
            return ()
        ends = self._reasoning_ends
        if not ends:
            raise ConstraintError(
                "the answer cannot be constrained while the model reasons",
                why="its vocabulary has no token that ends the reasoning",
                fix=["switch reasoning off for this request"],
            )
        return ends

    @property
    def _reasoning_ends(self) -> tuple[int, ...]:
        tags = reasoning_tags(self.tokenizer, self.template)
        return tags.ends if tags else ()

    def reasoning_limit(
        self, command: protocol.Generate, prompt: Prompt
    ) -> ReasoningLimit | None:
        """How long the answer may reason; None: as long as it likes.

        A budget leaves room for an answer: 1024 tokens, or a quarter of what there is.
        It needs tags that are tokens of their own, since it is kept token by token.
        """
        tags = reasoning_tags(self.tokenizer, self.template)
        budget = command.reasoning_budget
        if budget is None or not command.messages or not tags or tags.close_id is None:
            return None
        if budget < 0:
            raise UsageError(f"reasoning_budget is {budget}; allowed: 0 or more")
        closing = (*self.tokenizer.encode_literal(_BRIDGE), tags.close_id)
        room = self.context_max - len(prompt.token_ids)
        room = min(room, command.max_tokens or room)
        kept = min(_ANSWER_ROOM, room // 4) + len(closing)
        return ReasoningLimit(
            tokens=max(min(budget, room - kept), 0),
            closing=closing,
            opener=tags.open_id,
            inside=prompt.opens_reasoning,
        )

    def reasons_anyway(self, command: protocol.Generate) -> bool:
        """Whether reasoning shall be off and the model has no switch for it."""
        off = command.effort == "none" and bool(command.messages)
        return off and "none" not in self.effort_levels and bool(self.reasoning_tags)

    def stop_ids(self, command: protocol.Generate, prompt: Prompt) -> frozenset[int]:
        """Tokens that end the answer, beside those the command names."""
        ends = self.tokenizer.eos_token_ids
        gap = self.infill_tokens
        if not command.messages and gap and gap.middle in prompt.token_ids:
            ends |= gap.ends
        return ends

    def _conversation(self, command: protocol.Generate | protocol.Count) -> Prompt:
        arguments: dict[str, Any] = {
            "tools": command.tools,
            "options": self._options(command),
        }
        parts = (self.tokenizer, self.template, command.messages)
        if command.continue_final:
            return build_open(*parts, **arguments)
        if isinstance(command, protocol.Count):
            generation_prompt = command.generation_prompt
            return build_prompt(
                *parts, **arguments, generation_prompt=generation_prompt
            )
        prompt = build_prompt(*parts, **arguments)
        words = self.calls.forced_words(command)
        if not words or (prompt.opens_reasoning and self._reasoning_ends):
            return prompt
        return force(self.tokenizer, self.template, prompt, words)

    def _options(self, command: protocol.Generate | protocol.Count) -> dict[str, Any]:
        return {**self.template.effort.choose(command.effort), **command.options}

    def check_id(self, token_id: int, holder: str) -> None:
        """Refuse what is no token.

        Raises:
            UsageError: the model has no such id.
        """
        vocab = self.tokenizer.vocab_size
        if not 0 <= token_id < vocab:
            raise UsageError(
                f"{holder} holds the token id {token_id}",
                why=f"ids are 0 to {vocab - 1}",
            )

    def _of_ids(self, token_ids: tuple[int, ...]) -> Prompt:
        for token_id in token_ids:
            self.check_id(token_id, "the prompt")
        text = self.tokenizer.decode(token_ids, skip_special_tokens=False)
        return Prompt(token_ids, text)


def resolve_request(
    command: protocol.Generate, prompt: Prompt, speech: Speech
) -> GenerationRequest:
    """Fill in everything a command left open.

    Raises:
        UsageError: a sampling value is out of range, or the prompt is empty.
    """
    if not prompt.token_ids:
        raise UsageError("the prompt is empty")
    if command.max_tokens is not None and command.max_tokens < 1:
        raise UsageError(f"max_tokens is {command.max_tokens}; allowed: 1 or more")
    sampling = command.sampling
    stops = set(sampling.stop_token_ids)
    if not sampling.ignore_eos:
        stops |= speech.stop_ids(command, prompt)
    seed = secrets.randbits(63) if sampling.seed is None else sampling.seed
    banned = tuple((token_id, _BAN) for token_id in speech.calls.banned_ids(command))
    for token_id, _ in sampling.logit_bias:
        speech.check_id(token_id, "logit_bias")
    sampling = replace(sampling, logit_bias=sampling.logit_bias + banned)
    return GenerationRequest(
        id=command.id,
        token_ids=tuple(prompt.token_ids),
        sampling=_resolve_sampling(sampling, speech),
        seed=seed,
        seeded=sampling.seed is not None,
        max_new_tokens=command.max_tokens,
        stop_token_ids=frozenset(stops),
        draft=command.draft,
        prefill_only=command.prefill_only,
        grammar=speech.grammar(command, prompt),
        reasoning=speech.reasoning_limit(command, prompt),
        marks=speech.marks(command, prompt),
        foreground=command.foreground,
        logprobs=command.logprobs,
        logprobs_drawn=command.logprobs_drawn,
        prompt_logprobs=command.prompt_logprobs,
    )


def _resolve_sampling(asked: Sampling, speech: Speech) -> SamplingParams:
    values, defaults = {}, speech.sampling
    for item in fields(SamplingParams):
        value = getattr(asked, item.name)
        if value is None:
            value = getattr(defaults, item.name)
        if value is not None:
            values[item.name] = value
    if values.get("penalty_window") is not None:  # it is kept in full
        values["penalty_window"] = min(values["penalty_window"], speech.context_max)
    return SamplingParams(**values)
