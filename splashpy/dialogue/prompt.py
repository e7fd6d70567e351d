# SPDX-License-Identifier: Apache-2.0
"""A conversation or a text, turned into the tokens the target reads.

Control strings in messages and tools are ordinary text: a user who writes
``<|im_end|>`` ends nothing. Only the template's own control strings become control
ids. One exception is made: where a template itself takes reasoning out of an assistant
message by its tags, the block the message begins with keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from splashpy.dialogue.conversation import Message, normalise, normalise_tools
from splashpy.dialogue.literal import ControlStrings
from splashpy.dialogue.reasoning import ReasoningTags, find_tags, split_reasoning
from splashpy.dialogue.template import ChatTemplate
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.errors import UsageError


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the target reads before it answers.

    Attributes:
        token_ids: at least one id.
        text: the same for a person to read; it does not tell control strings from
            the same characters in a message.
        opens_reasoning: the answer begins inside a reasoning block.
    """

    token_ids: tuple[int, ...]
    text: str
    opens_reasoning: bool = False


def reasoning_tags(
    tokenizer: Tokenizer, template: ChatTemplate
) -> ReasoningTags | None:
    """The reasoning tags of a model; None when it has none."""
    return find_tags(template.source, tokenizer.control_id)


def build_prompt(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    generation_prompt: bool = True,
) -> Prompt:
    """The prompt of a conversation, ending where the answer begins.

    Args:
        tokenizer: of the target.
        template: of the target.
        messages: OpenAI message objects.
        tools: OpenAI tool objects.
        options: variables of the template, such as those of an effort.
        generation_prompt: end with the beginning of an answer.

    Raises:
        UsageError: a message or a tool has not the right form.
        TemplateError: there is no template, or it fails on this conversation.
    """
    controls = tokenizer.controls
    kept = None if template.reads_reasoning else template.written_tags
    hidden = [_hide(item, controls, kept) for item in template.prepare(messages)]
    offered = controls.hide_all(normalise_tools(tools))
    rendered = template.render_prepared(
        hidden,
        tools=offered,
        options=options,
        add_generation_prompt=generation_prompt,
    )

    opens = False
    tags = reasoning_tags(tokenizer, template)
    if tags is not None and generation_prompt:
        turns = template.render_prepared(
            hidden, tools=offered, options=options, add_generation_prompt=False
        )
        opens = _opens(tags, _added(rendered, turns))
    return Prompt(
        token_ids=tuple(tokenizer.encode_rendered(rendered)),
        text=controls.reveal(rendered),
        opens_reasoning=opens,
    )


def build_raw(tokenizer: Tokenizer, text: str) -> Prompt:
    """The prompt that is ``text`` itself, with BOS where the model wants it.

    Control strings in it become control ids: fill-in-the-middle prompts and hand-made
    chat formats are written this way.

    Raises:
        UsageError: the prompt has no tokens.
    """
    token_ids = tuple(tokenizer.encode(text, add_special_tokens=True))
    if not token_ids:
        raise UsageError("the prompt is empty", fix=("give it some text",))
    return Prompt(token_ids=token_ids, text=text)


def build_open(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Prompt:
    """The prompt of a conversation whose last message is the beginning of the answer.

    Arguments and errors are those of ``build_prompt``.

    Raises:
        UsageError: the last message is not the assistant's.
    """
    if not messages or messages[-1].get("role") != "assistant":
        raise UsageError(
            "the last message is not the assistant's, so it cannot be continued",
            fix=("end with a message of the role assistant",),
        )
    begun = normalise(messages)[-1]
    prompt = build_prompt(tokenizer, template, messages[:-1], tools, options)
    reasoning, content = begun.get("reasoning_content", ""), begun["content"]
    if prompt.opens_reasoning and reasoning and not content:
        return _with(prompt, tokenizer.encode_literal(reasoning), reasoning, opens=True)
    prompt = close_reasoning(tokenizer, template, prompt)
    return _with(prompt, tokenizer.encode_literal(content), content)


def close_reasoning(
    tokenizer: Tokenizer, template: ChatTemplate, prompt: Prompt
) -> Prompt:
    """The prompt with its reasoning block ended, so that the answer proper begins."""
    tags = reasoning_tags(tokenizer, template)
    if tags is None or not prompt.opens_reasoning:
        return prompt
    text = tags.close + tags.gap
    return _with(prompt, tokenizer.encode(text), text)


def force(
    tokenizer: Tokenizer, template: ChatTemplate, prompt: Prompt, words: Sequence[str]
) -> Prompt:
    """The prompt with a beginning of the answer written for the model.

    Args:
        tokenizer: of the target.
        template: of the target.
        prompt: ends where the answer begins.
        words: every second one is somebody's text, in which no control string counts.
    """
    prompt = close_reasoning(tokenizer, template, prompt)
    for number, text in enumerate(words):
        encode = tokenizer.encode_literal if number % 2 else tokenizer.encode
        prompt = _with(prompt, encode(text), text)
    return prompt


def _with(
    prompt: Prompt, token_ids: Sequence[int], text: str, *, opens: bool = False
) -> Prompt:
    return Prompt((*prompt.token_ids, *token_ids), prompt.text + text, opens)


def _hide(
    message: Message, controls: ControlStrings, kept: ReasoningTags | None
) -> Message:
    """The message with its control strings hidden.

    ``kept``: tags that stay around a block an assistant message begins with.
    """
    content = message["content"]
    hidden = {key: controls.hide_all(value) for key, value in message.items()}
    hidden["content"] = controls.hide_free(content)
    if kept and message["role"] == "assistant" and split_reasoning(content, kept):
        before, _, rest = content.partition(kept.open)
        inside, _, after = rest.partition(kept.close)
        inside, after = controls.hide_free(inside), controls.hide_free(after)
        hidden["content"] = before + kept.open + inside + kept.close + after
    if "reasoning_content" in message:
        hidden["reasoning_content"] = controls.hide_free(message["reasoning_content"])
    for call in hidden.get("tool_calls", ()):
        for name in ("name", "arguments"):
            if name in call["function"]:
                value = call["function"][name]
                call["function"][name] = controls.hide_all(value, free=True)
    return hidden


def _added(rendered: str, turns: str) -> str:
    """What the generation prompt adds to the turns."""
    if rendered.startswith(turns):
        return rendered[len(turns) :]
    pairs = enumerate(zip(rendered, turns, strict=False))
    return rendered[next((at for at, (a, b) in pairs if a != b), len(rendered)) :]


def _opens(tags: ReasoningTags, text: str) -> bool:
    return text.rfind(tags.open) > text.rfind(tags.close)
