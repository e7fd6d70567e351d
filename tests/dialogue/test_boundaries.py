# SPDX-License-Identifier: Apache-2.0
"""Places of a prompt that later prompts share, measured on templates of every kind."""

from __future__ import annotations

from typing import Any

import pytest

from splashpy.dialogue.boundaries import UNKNOWN_TAIL, Boundaries
from splashpy.dialogue.prompt import build_prompt
from splashpy.dialogue.template import ChatTemplate
from splashpy.dialogue.tokenizer import Tokenizer

TURNS = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}"
    "{{ '<|im_end|>\\n' }}{%- endfor %}"
)
PLAIN = TURNS + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
OPENER = PLAIN.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
NEVER_ANSWERED = (
    "{%- for m in messages %}{%- if m.role == 'assistant' %}"
    "{{ raise_exception('no answers') }}{% endif %}{{ m.content }}{%- endfor %}"
)
RENUMBERED = "{{ messages | length }}" + PLAIN + 70 * "!"


def messages(*texts: str) -> list[dict[str, Any]]:
    roles = ["user", "assistant"] * len(texts)
    pairs = zip(roles, texts, strict=False)
    return [{"role": role, "content": text} for role, text in pairs]


SYSTEM = {"role": "system", "content": "Answer in verse."}


@pytest.mark.parametrize(
    ("source", "tail"),
    [
        (PLAIN, 1),
        (OPENER, 2),  # <think> is one token, its line end another
        (NEVER_ANSWERED, UNKNOWN_TAIL),
        (RENUMBERED, UNKNOWN_TAIL),
    ],
    ids=["plain", "opener", "refuses answers", "changes at once"],
)
def test_the_tail_the_next_turn_renders_anew_is_measured(
    source: str, tail: int, byte_tokenizer: Tokenizer
) -> None:
    boundaries = Boundaries(byte_tokenizer, ChatTemplate({"default": source}))
    assert boundaries.marks([], messages("Hello")).unstable == tail


@pytest.mark.parametrize("source", [PLAIN, OPENER], ids=["plain", "opener"])
def test_the_next_turn_begins_with_the_stable_part(
    source: str, byte_tokenizer: Tokenizer
) -> None:
    template = ChatTemplate({"default": source})
    boundaries = Boundaries(byte_tokenizer, template)
    asked = build_prompt(byte_tokenizer, template, messages("Hello")).token_ids
    stable = len(asked) - boundaries.marks(asked, messages("Hello")).unstable
    turn = messages("Hello", "Good day.", "And now?")
    grown = build_prompt(byte_tokenizer, template, turn).token_ids
    assert grown[:stable] == asked[:stable]


@pytest.mark.parametrize("name", ["chatml", "llama3", "qwen3"])
def test_every_talk_with_a_system_prompt_begins_with_its_tokens(
    name: str, byte_tokenizer: Tokenizer, make_template: Any
) -> None:
    template = make_template(name)
    boundaries = Boundaries(byte_tokenizer, template)
    talks = [[SYSTEM, *messages(text)] for text in ("Hello", "", "\n\nWhy?", "Helm")]
    prompts = [build_prompt(byte_tokenizer, template, t).token_ids for t in talks]
    places = [
        boundaries.marks(prompt, talk).system
        for prompt, talk in zip(prompts, talks, strict=True)
    ]
    assert len(set(places)) == 1
    shared = places[0]
    assert len({prompt[:shared] for prompt in prompts}) == 1
    assert "verse" in byte_tokenizer.decode(prompts[0][:shared])
    assert "Hello" not in byte_tokenizer.decode(prompts[0][:shared])


def test_without_a_system_prompt_nothing_is_shared(byte_tokenizer: Tokenizer) -> None:
    boundaries = Boundaries(byte_tokenizer, ChatTemplate({"default": PLAIN}))
    talk = messages("Hello")
    template = ChatTemplate({"default": PLAIN})
    prompt = build_prompt(byte_tokenizer, template, talk).token_ids
    assert boundaries.marks(prompt, talk).system == 0


def test_tools_belong_to_what_is_shared(
    byte_tokenizer: Tokenizer, make_template: Any
) -> None:
    template = make_template("qwen3")
    boundaries = Boundaries(byte_tokenizer, template)
    tools = [{"type": "function", "function": {"name": "look"}}]
    prompt = build_prompt(byte_tokenizer, template, messages("Hi"), tools).token_ids
    place = boundaries.marks(prompt, messages("Hi"), tools).system
    assert "look" in byte_tokenizer.decode(prompt[:place])


def test_a_system_prompt_is_rendered_once(
    byte_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    boundaries = Boundaries(byte_tokenizer, ChatTemplate({"default": PLAIN}))
    talk = [SYSTEM, *messages("Hello")]
    marks = boundaries.marks((1, 2), talk)

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("rendered again")

    monkeypatch.setattr("splashpy.dialogue.boundaries.build_prompt", refuse)
    assert boundaries.marks((1, 2), talk) == marks
