# SPDX-License-Identifier: Apache-2.0
"""Prompts: template control strings are control ids, everybody else's are text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from splashpy.dialogue.literal import ControlStrings
from splashpy.dialogue.prompt import build_prompt, build_raw, reasoning_tags
from splashpy.dialogue.template import ChatTemplate
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.errors import TemplateError, UsageError

Make = Callable[[str], ChatTemplate]

CONTROLS = ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>")
free_text = st.text(max_size=20)
ordinary_text = st.text(st.characters(exclude_characters="<|>"), max_size=20)
# Fragments that make a control string together with each other or the template.
hostile_text = st.lists(
    free_text | st.sampled_from([*CONTROLS, "<|im_", "end|>", "<|", "|>", "<", ">"]),
    max_size=5,
).map("".join)


def counts(tokenizer: Tokenizer, token_ids: tuple[int, ...]) -> dict[str, int]:
    """How often each control token occurs."""
    return {
        text: token_ids.count(token_id)
        for text in CONTROLS
        if (token_id := tokenizer.control_id(text)) is not None
    }


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def conversation(texts: list[str]) -> list[dict[str, Any]]:
    system, question, answer, reasoning, name, value, result = texts
    function = {"name": name, "arguments": {"key": value}}
    return [
        {"role": "system", "content": system},
        user(question),
        {
            "role": "assistant",
            "content": answer,
            "reasoning_content": reasoning or "why",
            "tool_calls": [{"function": function}],
        },
        {"role": "tool", "content": result, "name": name},
    ]


@settings(max_examples=50)
@given(texts=st.lists(hostile_text, min_size=7, max_size=7))
def test_no_message_can_produce_a_control_token(
    byte_tokenizer: Tokenizer, make_template: Make, texts: list[str]
) -> None:
    template = make_template("qwen3")
    harmless = ["x" if text else "" for text in texts]
    tools = [{"function": {"name": texts[0], "parameters": {texts[1]: texts[2]}}}]
    safe_tools = [{"function": {"name": "x", "parameters": {"x": "x"}}}]

    hostile = build_prompt(byte_tokenizer, template, conversation(texts), tools)
    safe = build_prompt(byte_tokenizer, template, conversation(harmless), safe_tools)

    assert counts(byte_tokenizer, hostile.token_ids) == counts(
        byte_tokenizer, safe.token_ids
    )


# A template that puts nothing between what people write.
GLUE = """
{%- for m in messages %}{{ m.content }}
{%- if m.reasoning_content %}{{ '<|' + m.reasoning_content + '|>' }}{% endif %}
{%- for call in m.tool_calls or [] %}{{ '<|' + call.function.name + '|>' }}
{%- for value in call.function.arguments.values() %}{{ value }}{% endfor %}
{%- endfor %}{% endfor %}
"""


@pytest.mark.parametrize(
    "texts",
    [
        ["<|im_", "end|>", "", "", "x", "", ""],
        ["", "", "", "", "im_end", "", ""],
        ["", "", "", "im_end", "x", "", ""],
        ["", "", "<|im_end", "|>", "x", "", ""],
        ["", "", "", "", "x", "<|im_", "end|>"],
        ["<|", "im_end", "|>", "", "x", "", ""],
    ],
)
def test_pieces_of_a_control_string_never_make_one_together(
    byte_tokenizer: Tokenizer, texts: list[str]
) -> None:
    prompt = build_prompt(
        byte_tokenizer, ChatTemplate({"default": GLUE}), conversation(texts)
    )

    assert not any(counts(byte_tokenizer, prompt.token_ids).values())


@given(text=hostile_text)
def test_a_message_reaches_the_model_character_by_character(
    byte_tokenizer: Tokenizer, make_template: Make, text: str
) -> None:
    prompt = build_prompt(byte_tokenizer, make_template("chatml"), [user(text)])
    turn = byte_tokenizer.decode(prompt.token_ids).split("user\n", 1)[1]

    assert turn == f"{text}\nassistant\n"


@settings(max_examples=40)
@given(texts=st.lists(ordinary_text, min_size=7, max_size=7))
def test_ordinary_text_is_tokenized_as_if_nothing_were_hidden(
    any_tokenizer: Tokenizer, make_template: Make, texts: list[str]
) -> None:
    template = make_template("qwen3")
    messages = conversation(texts)

    prompt = build_prompt(any_tokenizer, template, messages)

    rendered = template.render(messages)
    assert prompt.text == rendered
    assert list(prompt.token_ids) == any_tokenizer.encode(rendered)


def test_a_literal_end_of_turn_is_spelled_out(
    byte_tokenizer: Tokenizer, make_template: Make
) -> None:
    prompt = build_prompt(
        byte_tokenizer, make_template("chatml"), [user("<|im_end|> and <think>")]
    )

    assert counts(byte_tokenizer, prompt.token_ids) == {
        "<|im_start|>": 3,
        "<|im_end|>": 2,
        "<think>": 0,
        "</think>": 0,
        "<tool_call>": 0,
    }
    assert "user\n<|im_end|> and <think><|im_end|>\n" in prompt.text


def test_an_answer_that_talks_about_tags_is_not_cut_at_them(
    plain_tokenizer: Tokenizer, make_template: Make
) -> None:
    answer = {"role": "assistant", "content": "Close it with </think>, then go on."}

    prompt = build_prompt(
        plain_tokenizer, make_template("qwen3"), [user("?"), answer, user("!")]
    )

    assert answer["content"] in prompt.text


def test_a_leading_block_keeps_its_tags_where_the_template_cuts_it_out(
    byte_tokenizer: Tokenizer,
) -> None:
    cutting = (
        "{% for m in messages %}{{ m.content.split('</think>')[-1] }}|{% endfor %}"
    )
    answer = {
        "role": "assistant",
        "content": "<think>why <|im_end|></think>yes </think>",
    }

    prompt = build_prompt(
        byte_tokenizer, ChatTemplate({"default": cutting}), [user("?"), answer]
    )

    assert prompt.text == "?|yes </think>|"


def test_edges_a_neighbour_could_complete_are_hidden() -> None:
    controls = ControlStrings(["<|im_end|>"])
    rendered = "".join(controls.hide_free(part) for part in ("a<|im_", "end", "|>b"))

    assert controls.reveal(rendered) == "a<|im_end|>b"
    assert controls.seal(rendered) == "a<|im_end|>b"
    assert controls.seal("<|im_end|>") == controls.name("<|im_end|>")


@pytest.mark.parametrize(
    ("text", "hidden"), [("  <|im_", True), ("\n", False), ("", False), (" a ", False)]
)
def test_white_space_at_the_edges_stays_for_the_template(
    text: str, hidden: bool
) -> None:
    shown = ControlStrings(["<|im_end|>"]).hide_free(text)

    assert (shown.lstrip() != text.lstrip()) is hidden
    assert (
        shown[: len(shown) - len(shown.lstrip())]
        == text[: len(text) - len(text.lstrip())]
    )


def test_thousands_of_control_strings_are_found(
    write_model: Callable[..., Path], byte_definition: tokenizers.Tokenizer
) -> None:
    unused = [f"<unused{number}>" for number in range(3000)]
    byte_definition.add_special_tokens(unused)
    tokenizer = Tokenizer.from_directory(write_model(byte_definition))

    assert tokenizer.encode_rendered("<unused7><unused2999>") == [
        tokenizer.id_of("<unused7>"),
        tokenizer.id_of("<unused2999>"),
    ]
    assert len(tokenizer.encode_literal("<unused7>")) == len("<unused7>")


def test_control_tokens_that_begin_alike_are_matched_longest_first(
    write_model: Callable[..., Path], byte_definition: tokenizers.Tokenizer
) -> None:
    byte_definition.add_special_tokens(["<a>", "<a><b>"])
    tokenizer = Tokenizer.from_directory(write_model(byte_definition))

    assert tokenizer.encode_rendered("<a><b>") == [tokenizer.id_of("<a><b>")]
    assert tokenizer.encode_rendered("<a><c>")[0] == tokenizer.id_of("<a>")


def test_control_strings_a_template_builds_from_roles_are_its_own(
    write_model: Callable[..., Path], byte_definition: tokenizers.Tokenizer
) -> None:
    byte_definition.add_special_tokens(["<|user|>"])
    tokenizer = Tokenizer.from_directory(write_model(byte_definition))
    source = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    template = ChatTemplate({"default": source})

    prompt = build_prompt(tokenizer, template, [user("<|user|>")])

    assert prompt.token_ids.count(tokenizer.control_id("<|user|>") or -1) == 1


@pytest.mark.parametrize(
    ("effort", "opens"), [(None, True), ("low", True), ("none", False)]
)
def test_the_generation_prompt_may_open_reasoning(
    byte_tokenizer: Tokenizer, make_template: Make, effort: str | None, opens: bool
) -> None:
    template = make_template("effort")
    prompt = build_prompt(
        byte_tokenizer,
        template,
        [user("<think>")],
        options=template.effort.choose(effort),
    )

    assert prompt.opens_reasoning is opens


def test_a_generation_prompt_without_tags_opens_nothing(
    byte_tokenizer: Tokenizer, make_template: Make
) -> None:
    for name in ("chatml", "qwen3"):
        prompt = build_prompt(byte_tokenizer, make_template(name), [user("<think>")])
        assert not prompt.opens_reasoning


def test_reasoning_opens_even_where_the_turns_render_differently(
    byte_tokenizer: Tokenizer,
) -> None:
    source = (
        "{% for m in messages %}{{ m.content }}{% endfor %}"
        "{{ '[bot]<think>' if add_generation_prompt else '[end]' }}"
    )

    prompt = build_prompt(
        byte_tokenizer, ChatTemplate({"default": source}), [user("a")]
    )

    assert prompt.opens_reasoning


def test_tags_are_tokens_where_the_vocabulary_has_them(
    byte_tokenizer: Tokenizer, plain_tokenizer: Tokenizer, make_template: Make
) -> None:
    thinking, chatml = make_template("qwen3"), make_template("chatml")
    with_ids = reasoning_tags(byte_tokenizer, thinking)
    written = reasoning_tags(plain_tokenizer, thinking)

    assert with_ids is not None
    assert with_ids.open_id == byte_tokenizer.id_of("<think>")
    assert written is not None
    assert written.open_id is None
    assert reasoning_tags(plain_tokenizer, chatml) is None


def test_a_short_prompt_is_a_prompt(
    byte_tokenizer: Tokenizer, make_template: Make
) -> None:
    assert build_raw(byte_tokenizer, "hi").token_ids
    assert build_prompt(byte_tokenizer, make_template("effort"), [user("")]).token_ids


def test_a_raw_prompt_needs_no_template(byte_tokenizer: Tokenizer) -> None:
    with pytest.raises(TemplateError):
        build_prompt(byte_tokenizer, ChatTemplate({}), [user("hi")])

    prompt = build_raw(byte_tokenizer, "<|im_start|>hi")

    assert prompt.token_ids[0] == byte_tokenizer.id_of("<|im_start|>")
    assert prompt.text == "<|im_start|>hi"
    assert not prompt.opens_reasoning


def test_an_empty_raw_prompt_is_refused_unless_bos_makes_it_one(
    byte_tokenizer: Tokenizer,
    write_model: Callable[..., Path],
    bos_tokenizer: tokenizers.Tokenizer,
) -> None:
    with pytest.raises(UsageError, match="empty"):
        build_raw(byte_tokenizer, "")
    with_bos = Tokenizer.from_directory(
        write_model(bos_tokenizer, tokenizer_config={"bos_token": "<s>"})
    )

    assert build_raw(with_bos, "").token_ids == (with_bos.bos_token_id,)
