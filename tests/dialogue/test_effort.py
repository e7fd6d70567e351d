# SPDX-License-Identifier: Apache-2.0
"""Reasoning efforts: found in the template, asked for in anybody's words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from splashpy.dialogue.effort import WORDS, EffortScale
from splashpy.dialogue.template import ChatTemplate
from splashpy.errors import UsageError

Make = Callable[[str], ChatTemplate]


def scale_of(source: str) -> EffortScale:
    return ChatTemplate({"default": source}).effort


def test_a_template_with_its_own_words_and_a_switch(make_template: Make) -> None:
    effort = make_template("effort").effort

    assert effort.levels == ("none", "low", "medium", "xhigh")
    assert effort.default == "xhigh"


@pytest.mark.parametrize(
    ("word", "level"),
    [
        ("none", "none"),
        ("minimal", "low"),
        ("low", "low"),
        ("medium", "medium"),
        ("high", "xhigh"),
        ("xhigh", "xhigh"),
        ("max", "xhigh"),
    ],
)
def test_a_word_the_model_lacks_means_the_next_higher(
    make_template: Make, word: str, level: str
) -> None:
    effort = make_template("effort").effort

    assert effort.choose(word) == effort.options[level]


@pytest.mark.parametrize("name", ["effort", "qwen3", "chatml"])
def test_an_unknown_word_is_refused_with_the_known_ones(
    make_template: Make, name: str
) -> None:
    with pytest.raises(UsageError, match="banana") as caught:
        make_template(name).effort.choose("banana")
    assert "medium" in caught.value.why


@pytest.mark.parametrize("name", ["effort", "qwen3", "chatml"])
@pytest.mark.parametrize("word", [*WORDS, None])
def test_no_known_word_breaks_a_template(
    make_template: Make, name: str, word: str | None
) -> None:
    template = make_template(name)

    options = template.effort.choose(word)

    assert template.render([{"role": "user", "content": "x"}], options=options)


def test_a_switch_alone_is_none_or_on(make_template: Make) -> None:
    effort = make_template("qwen3").effort

    assert effort.levels == ("none", "on")
    assert effort.default == "on"
    assert effort.choose("high") == {"enable_thinking": True}
    assert effort.choose("none") == {"enable_thinking": False}


def test_a_template_that_takes_any_word_gets_the_usual_three() -> None:
    effort = scale_of("Reasoning: {{ reasoning_effort or 'medium' }}")

    assert effort.levels == ("low", "medium", "high")
    assert effort.default == "medium"
    assert effort.choose("none") == {"reasoning_effort": "low"}
    assert effort.choose("max") == {"reasoning_effort": "high"}


def test_a_template_without_a_say_takes_every_word_and_does_nothing(
    make_template: Make,
) -> None:
    template = make_template("chatml")

    assert template.effort_levels == ()
    assert template.effort.choose("high") == {}


def test_a_level_the_template_refuses_is_none() -> None:
    refusing = (
        "{% if enable_thinking is false %}{{ raise_exception('always on') }}{% endif %}"
        "{{ reasoning_effort or 'medium' }}"
    )

    assert scale_of(refusing).levels == ("low", "medium", "high")


def test_a_switch_without_effect_is_no_level() -> None:
    assert scale_of("{% set x = enable_thinking %}hi").levels == ()
