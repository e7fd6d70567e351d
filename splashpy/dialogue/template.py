# SPDX-License-Identifier: Apache-2.0
"""A model's chat template: a conversation in, the text of a prompt out.

At load the template is tried out: which conversations it takes (``acceptance.py``) and
which reasoning efforts it knows (``effort.py``). A template that does not compile
spoils chats only: its error is raised when something is rendered, so raw prompts go on
working.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2

from splashpy.dialogue.acceptance import Acceptance, probe
from splashpy.dialogue.conversation import Message, fit, normalise, normalise_tools
from splashpy.dialogue.effort import EffortScale, find_scale
from splashpy.dialogue.metadata import DEFAULT_TEMPLATE, read_metadata
from splashpy.dialogue.reasoning import named_tags, split_reasoning
from splashpy.dialogue.sandbox import Sandbox, run
from splashpy.errors import TemplateError

_TOOL_TEMPLATE = "tool_use"
_PROBE = ({"role": "user", "content": "Hello"},)


class ChatTemplate:
    """The chat template of one model; may be used from any thread.

    Attributes:
        source: text of the default template; empty when the model has none.
        problem: why nothing can be rendered; None when all is well.
        written_tags: the reasoning tags the template names, if any.
        reads_reasoning: it takes reasoning apart from the answer.
        reads_tools: it shows tools to the model.
        acceptance: which conversations it renders as they are.
        effort: the reasoning efforts it distinguishes.
    """

    def __init__(
        self,
        sources: Mapping[str, str],
        *,
        special_tokens: Mapping[str, str] | None = None,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._special_tokens = dict(special_tokens or {})
        self._templates: dict[str, jinja2.Template] = {}
        self.source = sources.get(DEFAULT_TEMPLATE) or next(iter(sources.values()), "")
        self.written_tags = named_tags(self.source)
        self.reads_reasoning = "reasoning_content" in self.source
        self.problem: TemplateError | None = None
        self.acceptance = Acceptance()
        self.effort = EffortScale()

        variables: frozenset[str] = frozenset()
        try:
            variables = self._compile(sources, Sandbox(clock))
        except TemplateError as error:
            self.problem = error
        else:
            self.acceptance = probe(self._run)
            self.effort = find_scale(self._run_probe, variables)
        self.reads_tools = "tools" in variables

    @classmethod
    def from_directory(
        cls, directory: Path, *, clock: Callable[[], datetime] = datetime.now
    ) -> ChatTemplate:
        """The template whose files lie in ``directory``; empty when there is none.

        Raises:
            IntegrityError: a file is damaged.
        """
        metadata = read_metadata(directory, config={})
        return cls(
            metadata.templates, special_tokens=metadata.special_tokens, clock=clock
        )

    @property
    def effort_levels(self) -> tuple[str, ...]:
        """Names of the efforts, lowest first."""
        return self.effort.levels

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Text of the prompt, as the template writes it.

        Args:
            messages: OpenAI message objects.
            tools: OpenAI tool objects.
            add_generation_prompt: end with the beginning of an assistant turn.
            options: further template variables.

        Raises:
            UsageError: a message or a tool has not the right form.
            TemplateError: there is no template, or it fails on these messages.
        """
        return self.render_prepared(
            self.prepare(messages),
            tools=normalise_tools(tools),
            add_generation_prompt=add_generation_prompt,
            options=options,
        )

    def prepare(self, messages: Sequence[Mapping[str, Any]]) -> list[Message]:
        """Messages in the form this template takes.

        Raises:
            UsageError: a message has not the right form.
        """
        parted = [self._part_reasoning(item) for item in normalise(messages)]
        return fit(parted, self.acceptance)

    def render_prepared(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """``render`` for messages from ``prepare`` and tools of the same kind.

        Raises:
            TemplateError: there is no template, or it fails on these messages.
        """
        flags = {"tools": tools, "add_generation_prompt": add_generation_prompt}
        return self._run(messages, {**flags, **(options or {})})

    def _part_reasoning(self, message: Message) -> Message:
        tags = self.written_tags
        if tags is None or not self.reads_reasoning or message["role"] != "assistant":
            return message
        parts = split_reasoning(message["content"], tags)
        if parts is None or "reasoning_content" in message:
            return message
        return {**message, "reasoning_content": parts[0], "content": parts[1]}

    def _compile(self, sources: Mapping[str, str], sandbox: Sandbox) -> frozenset[str]:
        if not sources:
            raise TemplateError(
                "this model has no chat template",
                why="it is not made for conversations, or its files are incomplete",
                fix=(
                    "send a raw prompt instead of messages",
                    "put the model's chat_template.jinja into its directory",
                ),
            )
        variables: frozenset[str] = frozenset()
        for name, source in sources.items():
            self._templates[name], names = sandbox.compile(source)
            variables |= names
        return variables

    def _run_probe(self, options: Mapping[str, Any]) -> str:
        return self._run(_PROBE, options)

    def _run(
        self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> str:
        if self.problem is not None:
            raise self.problem.with_traceback(None)
        values = {
            **self._special_tokens,
            "messages": messages,
            "tools": None,
            "documents": None,
            "add_generation_prompt": True,
            **options,
        }
        return run(self._select(with_tools=bool(values["tools"])), values)

    def _select(self, *, with_tools: bool) -> jinja2.Template:
        if with_tools and _TOOL_TEMPLATE in self._templates:
            return self._templates[_TOOL_TEMPLATE]
        first = next(iter(self._templates.values()))
        return self._templates.get(DEFAULT_TEMPLATE, first)
