# SPDX-License-Identifier: Apache-2.0
"""The text side of a loaded model: tokenizer, template, defaults."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, fields

from splashpy import protocol
from splashpy.cache.plan import UNMARKED, Marks
from splashpy.dialogue.boundaries import Boundaries
from splashpy.dialogue.channels import ChannelSplitter
from splashpy.dialogue.grammars import Grammars
from splashpy.dialogue.prompt import Prompt, build_prompt, build_raw, reasoning_tags
from splashpy.dialogue.template import ChatTemplate
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.dialogue.turn import Turn
from splashpy.engine.request import GenerationRequest
from splashpy.errors import UsageError
from splashpy.package.model_directory import ModelDirectory
from splashpy.protocol import Sampling
from splashpy.verification.grammar import Grammar
from splashpy.verification.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class Speech:
    """How one model reads and writes text.

    Attributes:
        tokenizer: text to ids and back.
        template: messages to text.
        boundaries: places of a prompt that other prompts share.
        sampling: the package's defaults.
        context_max: tokens of prompt plus answer.
        grammars: what answers may be made to look like.
    """

    tokenizer: Tokenizer
    template: ChatTemplate
    boundaries: Boundaries
    sampling: Sampling
    context_max: int
    grammars: Grammars = field(init=False)

    def __post_init__(self) -> None:
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
        return cls(
            tokenizer,
            template,
            Boundaries(tokenizer, template),
            directory.sampling,
            max_context or context,
        )

    @property
    def effort_levels(self) -> tuple[str, ...]:
        """Reasoning efforts the template understands."""
        return self.template.effort_levels

    @property
    def effort_default(self) -> str:
        """The effort that applies when none is asked for; empty without levels."""
        return self.template.effort.default

    def prompt(self, command: protocol.Generate | protocol.Count) -> Prompt:
        """Token ids of what a command asks.

        Raises:
            TemplateError: the conversation cannot be rendered.
            UsageError: neither messages nor a prompt, or both.
        """
        if (command.prompt is None) == (not command.messages):
            raise UsageError("give either messages or a prompt")
        if command.prompt is not None:
            return build_raw(self.tokenizer, command.prompt)
        return build_prompt(
            self.tokenizer,
            self.template,
            command.messages,
            tools=getattr(command, "tools", ()),
            effort=getattr(command, "effort", None),
        )

    def marks(self, command: protocol.Generate, prompt: Prompt) -> Marks:
        """The places of a prompt; nothing is known about a raw one's."""
        if command.prompt is not None:
            return UNMARKED
        return self.boundaries.marks(
            prompt.token_ids, command.messages, command.tools, command.effort
        )

    def turn(
        self, command: protocol.Generate, prompt: Prompt, end_ids: frozenset[int]
    ) -> Turn:
        """The text path of the answer; a raw prompt's is content as a whole."""
        tags = None
        if command.prompt is None:
            tags = reasoning_tags(self.tokenizer, self.template)
        return Turn(
            self.tokenizer,
            splitter=ChannelSplitter(tags, inside=prompt.opens_reasoning),
            stops=command.sampling.stop,
            end_ids=end_ids,
        )

    def grammar(self, command: protocol.Generate, prompt: Prompt) -> Grammar | None:
        """What the answer must follow; None where it is free.

        Raises:
            UsageError: the constraint cannot be used, or not after this prompt.
        """
        if command.constraint is None:
            return None
        after = None
        if prompt.opens_reasoning:
            tags = reasoning_tags(self.tokenizer, self.template)
            after = tags.close_id if tags else None
            if after is None:
                raise UsageError(
                    "the answer cannot be constrained while the model reasons",
                    why="its vocabulary has no token that ends the reasoning",
                    fix=["switch reasoning off for this request"],
                )
        return self.grammars.compile(command.constraint, after)


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
        stops |= speech.tokenizer.eos_token_ids
    seed = secrets.randbits(63) if sampling.seed is None else sampling.seed
    return GenerationRequest(
        id=command.id,
        token_ids=tuple(prompt.token_ids),
        sampling=_resolve_sampling(sampling, speech.sampling),
        seed=seed,
        seeded=sampling.seed is not None,
        max_new_tokens=command.max_tokens,
        stop_token_ids=frozenset(stops),
        draft=command.draft,
        prefill_only=command.prefill_only,
        grammar=speech.grammar(command, prompt),
        marks=speech.marks(command, prompt),
    )


def _resolve_sampling(asked: Sampling, defaults: Sampling) -> SamplingParams:
    values = {}
    for item in fields(SamplingParams):
        value = getattr(asked, item.name)
        if value is None:
            value = getattr(defaults, item.name)
        if value is not None:
            values[item.name] = value
    return SamplingParams(**values)
