# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny

from splashpy.errors import UsageError
from splashpy.host.model import Speech
from splashpy.package.model_directory import ModelDirectory
from splashpy.training.examples import Example
from splashpy.training.mask_token import choose_mask_token, named_mask_token

MakeSpeech = Callable[..., Speech]


@pytest.fixture
def speech_with(tmp_path: Path) -> MakeSpeech:
    """A tiny model's text side with more control tokens, from id 259 on."""

    def make(*tokens: str) -> Speech:
        directory = tiny.write_model(tmp_path / "model")
        path = directory / "tokenizer.json"
        definition = json.loads(path.read_text())
        definition["added_tokens"] += [
            {**definition["added_tokens"][0], "id": 259 + index, "content": token}
            for index, token in enumerate(tokens)
        ]
        path.write_text(json.dumps(definition))
        return Speech.from_directory(ModelDirectory.open(directory), None)

    return make


def text(*token_ids: int) -> Example:
    return Example(token_ids, 1, "")


@pytest.mark.parametrize(
    ("tokens", "vocab_size", "expected"),
    [
        # As in Llama 3.
        (("<|python_tag|>", "<|reserved_special_token_0|>"), 261, 260),
        # As in SmolLM2: no reserved token, no spare row.
        (("<repo_name>", "<file_sep>"), 261, 259),
        # As in Qwen3: rows of the embedding beyond the tokenizer.
        (("<tool_call>",), 264, 260),
        (("<pad>", "<|mask|>"), 264, 260),
        (("<pad>", "<unk>", "<extra_id_0>"), 264, 261),
        ((), 260, 259),
    ],
)
def test_a_token_made_for_it_comes_before_a_spare_row_and_an_idle_token(
    speech_with: MakeSpeech, tokens: tuple[str, ...], vocab_size: int, expected: int
) -> None:
    chosen = choose_mask_token(speech_with(*tokens), vocab_size, [])
    assert chosen.token_id == expected


def test_a_token_of_the_template_or_an_end_is_never_chosen(
    speech_with: MakeSpeech,
) -> None:
    with pytest.raises(UsageError, match="no token that could be the mask"):
        choose_mask_token(speech_with(), 259, [])


def test_a_token_in_a_text_gives_way_to_one_that_is_in_none(
    speech_with: MakeSpeech,
) -> None:
    speech = speech_with("<repo_name>", "<file_sep>")
    texts = [text(1, 259), text(2)]
    chosen = choose_mask_token(speech, 261, texts)
    assert str(chosen) == "mask token 260 (<file_sep>), in no text"

    texts.append(text(260, 259))
    chosen = choose_mask_token(speech, 261, texts)
    assert str(chosen) == "mask token 260 (<file_sep>), in 1 text"


def test_a_chosen_token_must_exist_and_says_where_it_occurs(
    speech_with: MakeSpeech,
) -> None:
    speech = speech_with("<repo_name>")
    named = named_mask_token(259, speech, 260, [text(259), text(259, 1)])
    assert str(named) == "mask token 259 (<repo_name>), in 2 texts"
    with pytest.raises(UsageError, match="the largest token is 259"):
        named_mask_token(260, speech, 260, [])
