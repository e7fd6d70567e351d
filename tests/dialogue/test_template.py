# SPDX-License-Identifier: Apache-2.0
"""Rendered prompts, where templates are found, and how they fail.

Golden texts were written by hand from the templates in ``templates/``; the last test
renders the same conversations with transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from splashpy.dialogue.acceptance import Acceptance
from splashpy.dialogue.template import ChatTemplate
from splashpy.errors import IntegrityError, TemplateError

Make = Callable[[str], ChatTemplate]

HELLO = [{"role": "user", "content": "Hello"}]
TALK = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Bye"},
]
WEATHER = [
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "content": None,
        "reasoning": "Ask the tool.",
        "tool_calls": [
            {"function": {"name": "weather", "arguments": '{"city": "Plzeň"}'}}
        ],
    },
    {"role": "tool", "content": "rain"},
]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "<now>"}}]


def test_chatml(make_template: Make) -> None:
    assert make_template("chatml").render(HELLO) == (
        "<|im_start|>system\nYou are a test model.<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_llama3_with_bos_and_an_injected_date(make_template: Make) -> None:
    assert make_template("llama3").render(TALK) == (
        "<bos><|start_header_id|>system<|end_header_id|>\n\n"
        "Today Date: 09 Mar 2025\n\nBe kind.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_gemma_gets_its_system_message_in_the_first_turn(make_template: Make) -> None:
    assert make_template("gemma").render(TALK) == (
        "<bos><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n"
        "<start_of_turn>model\nHello.<end_of_turn>\n"
        "<start_of_turn>user\nBye<end_of_turn>\n"
        "<start_of_turn>model\n"
    )


def test_qwen3_with_tools_a_call_and_its_result(make_template: Make) -> None:
    assert make_template("qwen3").render(WEATHER, tools=TOOLS) == (
        "<|im_start|>system\n# Tools\n<tools>\n"
        '{"type": "function", "function": '
        '{"name": "weather", "description": "<now>"}}\n'
        "</tools>\nAnswer calls in <tool_call></tool_call>.<|im_end|>\n"
        "<|im_start|>user\nWeather?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nAsk the tool.\n</think>\n\n"
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Plzeň"}}\n'
        "</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nrain\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_qwen3_drops_the_reasoning_of_earlier_answers(make_template: Make) -> None:
    talk = [
        *HELLO,
        {"role": "assistant", "content": "<think>\nOld.\n</think>\n\nHi."},
        *HELLO,
    ]

    assert "Old." not in make_template("qwen3").render(talk)
    assert "assistant\nHi.<|im_end|>" in make_template("qwen3").render(talk)


def test_an_empty_list_of_tools_renders_as_no_tools(make_template: Make) -> None:
    template = make_template("qwen3")

    assert template.render(HELLO, tools=[]) == template.render(HELLO)
    assert template.reads_tools
    assert not make_template("chatml").reads_tools


def test_no_content_never_prints_none(make_template: Make) -> None:
    for name in ("chatml", "qwen3", "llama3"):
        assert "None" not in make_template(name).render(WEATHER)


def test_the_generation_prompt_can_be_left_out(make_template: Make) -> None:
    text = make_template("chatml").render(HELLO, add_generation_prompt=False)

    assert text.endswith("Hello<|im_end|>\n")


def test_what_each_template_accepts_is_found_out(make_template: Make) -> None:
    assert make_template("chatml").acceptance == Acceptance()
    assert make_template("effort").acceptance == Acceptance(system_later=False)
    assert make_template("gemma").acceptance == Acceptance(
        system_first=False, system_later=False, repeated_user=False
    )


def test_a_template_that_moves_late_system_messages_does_not_get_any() -> None:
    hoisting = (
        "{% for m in messages if m.role == 'system' %}{{ m.content }}\n{% endfor %}"
        "{% for m in messages if m.role != 'system' %}{{ m.content }}\n{% endfor %}"
    )

    assert not ChatTemplate({"default": hoisting}).acceptance.system_later


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("name", ["chatml", "qwen3", "effort", "llama3", "gemma"])
def test_a_late_system_message_renders_everywhere_and_in_its_place(
    make_template: Make, name: str, role: str
) -> None:
    late = [*TALK, {"role": role, "content": "Now shout."}, HELLO[0]]

    text = make_template(name).render(late)

    places = [text.index(mark) for mark in ("kind", "Bye", "shout", "Hello<")]
    assert places == sorted(places)
    turns = make_template(name).render(TALK, add_generation_prompt=False)
    kept = turns.rstrip("\n").removesuffix("<|im_end|>")
    kept = kept.removesuffix("<|eot_id|>").removesuffix("<end_of_turn>")
    assert text.startswith(kept)


def test_the_jinja_file_comes_before_the_settings(
    write_model: Callable[..., Path],
) -> None:
    settings = {"chat_template": "settings"}
    both = write_model(template="file", tokenizer_config=settings)
    one = write_model(tokenizer_config=settings, chat_template={"chat_template": "x"})
    last = write_model(chat_template={"chat_template": "json"})

    assert ChatTemplate.from_directory(both).render(HELLO) == "file"
    assert ChatTemplate.from_directory(one).render(HELLO) == "settings"
    assert ChatTemplate.from_directory(last).render(HELLO) == "json"


def test_a_named_template_serves_tools(write_model: Callable[..., Path]) -> None:
    named = [
        {"name": "default", "template": "{{ bos_token }}chat"},
        {"name": "tool_use", "template": "tools"},
    ]
    folder = write_model(
        tokenizer_config={"chat_template": named},
        special_tokens_map={"bos_token": {"content": "<s>"}},
    )
    template = ChatTemplate.from_directory(folder)

    assert template.render(HELLO) == "<s>chat"
    assert template.render(HELLO, tools=TOOLS) == "tools"


def test_a_model_without_a_template_says_what_to_do(
    write_model: Callable[..., Path],
) -> None:
    template = ChatTemplate.from_directory(write_model())

    with pytest.raises(TemplateError, match="no chat template") as caught:
        template.render(HELLO)
    assert any("raw prompt" in step for step in caught.value.fix)
    assert template.problem is not None
    assert template.effort_levels == ()


def test_a_template_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")

    with pytest.raises(IntegrityError, match=r"chat_template\.jinja"):
        ChatTemplate.from_directory(tmp_path)


def test_a_template_that_does_not_compile_names_the_line() -> None:
    template = ChatTemplate({"default": "ok\n{% for %}"})

    with pytest.raises(TemplateError, match="error in line 2"):
        template.render(HELLO)


@pytest.mark.parametrize(
    "statement",
    [
        "{{ raise_exception('no') }}",
        "{{ messages[0].content + 1 }}",
        "{{ messages[5].content }}",
        "{{ missing.field }}",
        "{{ 1 // 0 }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ range(10 ** 9) | list }}",
        "{{ messages | tojson(indent=messages) }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{% include 'other' %}",
    ],
)
def test_a_failing_template_is_a_template_error_with_its_line(statement: str) -> None:
    template = ChatTemplate({"default": f"first\n{statement}"})

    with pytest.raises(TemplateError, match="failed in line 2"):
        template.render(HELLO)


def test_the_message_of_raise_exception_is_passed_on() -> None:
    template = ChatTemplate({"default": "{{ raise_exception('only cats') }}"})

    with pytest.raises(TemplateError, match="only cats"):
        template.render(HELLO)


def test_json_keeps_letters_and_takes_its_options() -> None:
    source = "{{ messages[0] | tojson(indent=1) }}{{ '<é>' | tojson(true) }}"

    assert ChatTemplate({"default": source}).render(HELLO) == (
        '{\n "role": "user",\n "content": "Hello"\n}"<\\u00e9>"'
    )


def test_loop_controls_work() -> None:
    source = "{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}"

    assert ChatTemplate({"default": source + "{% endfor %}"}).render(HELLO) == "01"


CASES: list[tuple[str, Sequence[dict[str, Any]], list[dict[str, Any]] | None]] = [
    ("chatml", TALK, None),
    ("qwen3", TALK, TOOLS),
    ("llama3", TALK, None),
    ("gemma", TALK[1:], None),
]


@pytest.fixture(scope="module")
def reference() -> Callable[..., str]:
    """transformers' own rendering of one conversation."""
    chat = pytest.importorskip("transformers.utils.chat_template_utils")

    def render(source: str, messages: Sequence[dict[str, Any]], **values: Any) -> str:
        texts, _ = chat.render_jinja_template(
            conversations=[messages],
            chat_template=source,
            add_generation_prompt=True,
            **values,
        )
        return texts[0]

    return render


@pytest.mark.parametrize(("name", "messages", "tools"), CASES)
def test_rendering_agrees_with_transformers(
    make_template: Make,
    source: Callable[[str], str],
    reference: Callable[..., str],
    name: str,
    messages: Sequence[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
) -> None:
    # transformers prints the day it runs; the injected clock prints another.
    text = source(name).replace("strftime_now('%d %b %Y')", "'09 Mar 2025'")

    expected = reference(text, messages, tools=tools, bos_token="<bos>")

    assert make_template(name).render(messages, tools=tools) == expected
