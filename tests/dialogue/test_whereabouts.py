# SPDX-License-Identifier: Apache-2.0
"""A token of a prompt leads back to its message and character."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splashpy.dialogue.prompt import build_prompt
from splashpy.dialogue.template import ChatTemplate
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.dialogue.whereabouts import Whereabouts, locate


def messages(system: str, *texts: str) -> list[dict[str, Any]]:
    roles = ["user", "assistant"] * len(texts)
    pairs = zip(roles, texts, strict=False)
    talk = [{"role": role, "content": text} for role, text in pairs]
    return [{"role": "system", "content": system}, *talk]


def departure(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    before: list[dict[str, Any]],
    after: list[dict[str, Any]],
) -> Whereabouts:
    old = build_prompt(tokenizer, template, before)
    new = build_prompt(tokenizer, template, after)
    pairs = enumerate(zip(old.token_ids, new.token_ids, strict=False))
    at = next(index for index, (a, b) in pairs if a != b)
    was = old.token_ids[at : at + 8]
    return locate(tokenizer, new.token_ids, new.text, after, at=at, was=was)


def test_the_changed_word_of_an_early_message_is_named(
    any_tokenizer: Tokenizer, make_template: Any
) -> None:
    before = messages("be the fox", "the fox", "the fox", "the fox")
    after = messages("be the fox", "the a", "the fox", "the fox")
    found = departure(any_tokenizer, make_template("chatml"), before, after)
    if "user\n" not in any_tokenizer.decode(any_tokenizer.encode("user\n")):
        return  # a tokenizer that cannot spell the prompt cannot lead back into it
    assert (found.message, found.role, found.character) == (2, "user", 4)
    assert found.now.startswith("a")
    assert "fox" in found.was


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (("one", "two"), ("ane", "two"), (1, 0)),
        (("one", "two"), ("one", "twos"), (2, 3)),
        (("one", "two"), ("one", "two three"), (2, 3)),
        (("one", "two", "two"), ("one", "two", "twa"), (3, 2)),
        (("s", "say one", "one", "one"), ("s", "say one", "one", "onx"), (4, 2)),
    ],
)
def test_each_place_is_told_from_the_others(
    before: tuple[str, ...],
    after: tuple[str, ...],
    expected: tuple[int, int],
    byte_tokenizer: Tokenizer,
    make_template: Any,
) -> None:
    template = make_template("chatml")
    found = departure(byte_tokenizer, template, messages(*before), messages(*after))
    assert (found.message, found.character) == expected


WORDS = st.text("abcdef ", min_size=1, max_size=30).filter(lambda t: t.strip() == t)


@settings(max_examples=60)
@given(
    texts=st.lists(WORDS, min_size=2, max_size=6, unique=True),
    number=st.integers(0, 5),
    place=st.integers(0, 29),
)
def test_any_changed_character_is_found(
    texts: list[str],
    number: int,
    place: int,
    byte_tokenizer: Tokenizer,
    make_template: Any,
) -> None:
    number %= len(texts)
    place %= len(texts[number])
    changed = list(texts)
    text = texts[number]
    changed[number] = f"{text[:place]}X{text[place + 1 :]}"
    template = make_template("chatml")
    found = departure(byte_tokenizer, template, messages(*texts), messages(*changed))
    assert (found.message, found.character) == (number + 1, place)
    assert found.now[0] == "X"
    assert found.was[0] == text[place]
