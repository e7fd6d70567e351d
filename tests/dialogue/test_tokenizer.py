# SPDX-License-Identifier: Apache-2.0
"""Encoding, control tokens, end tokens, damaged files, many threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from splashpy.dialogue.detokenizer import StreamDetokenizer
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.errors import IntegrityError, ModelKindError

CONTROLS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>")
free_text = st.text(max_size=30)
mixed_text = st.lists(free_text | st.sampled_from(CONTROLS), max_size=6).map("".join)


def control_ids(tokenizer: Tokenizer) -> set[int]:
    ids = {tokenizer.control_id(text) for text in CONTROLS}
    return {token_id for token_id in ids if token_id is not None}


def test_control_strings_become_control_ids(byte_tokenizer: Tokenizer) -> None:
    start, *middle, end = byte_tokenizer.encode("<|im_start|>hi<|im_end|>")

    assert (start, end) == (
        byte_tokenizer.id_of("<|im_start|>"),
        byte_tokenizer.id_of("<|im_end|>"),
    )
    assert byte_tokenizer.decode(middle) == "hi"


@given(text=mixed_text)
def test_literal_text_has_no_control_ids(any_tokenizer: Tokenizer, text: str) -> None:
    token_ids = any_tokenizer.encode_literal(text)

    assert not control_ids(any_tokenizer).intersection(token_ids)


@given(text=mixed_text)
def test_literal_text_of_bytes_decodes_to_itself(
    byte_tokenizer: Tokenizer, text: str
) -> None:
    assert byte_tokenizer.decode(byte_tokenizer.encode_literal(text)) == text


@given(text=free_text)
def test_text_without_control_strings_is_encoded_alike_both_ways(
    any_tokenizer: Tokenizer, text: str
) -> None:
    assert any_tokenizer.encode_literal(text) == any_tokenizer.encode(text)


def test_a_long_text_is_encoded_like_any_other(any_tokenizer: Tokenizer) -> None:
    text = "the quick é🙂 fox\n  jumps <|im_end|> " * 2000
    expected = any_tokenizer._plain.encode(text, add_special_tokens=False).ids

    assert any_tokenizer.encode(text) == expected
    assert not control_ids(any_tokenizer).intersection(
        any_tokenizer.encode_literal(text)
    )


@given(text=mixed_text)
def test_a_rendered_prompt_is_encoded_as_plain_encoding_does(
    any_tokenizer: Tokenizer, text: str
) -> None:
    assert any_tokenizer.encode_rendered(text) == any_tokenizer.encode(text)


def test_white_space_tokens_are_ordinary_text(
    write_model: Callable[..., Path], byte_definition: tokenizers.Tokenizer
) -> None:
    byte_definition.add_tokens(["\n\n", "<table>"])
    tokenizer = Tokenizer.from_directory(write_model(byte_definition, "{{ 'a\n\nb' }}"))

    assert tokenizer.encode_literal("\n\n") == [tokenizer.id_of("\n\n")]
    assert tokenizer.encode_literal("<table>") == [tokenizer.id_of("<table>")]


def test_merges_that_spell_a_control_token_are_not_used_for_text(
    write_model: Callable[..., Path],
) -> None:
    words = ["<", "s", ">", "<s", "<s>", "a"]
    model = tokenizers.models.BPE(
        vocab={word: number for number, word in enumerate(words)},
        merges=[("<", "s"), ("<s", ">")],
    )
    definition = tokenizers.Tokenizer(model)
    definition.add_special_tokens(["<s>"])
    tokenizer = Tokenizer.from_directory(write_model(definition))

    assert tokenizer.encode("<s>a") == [4, 5]
    assert tokenizer.encode_literal("<s>a") == [3, 2, 5]


def test_lone_surrogates_count_as_replacement_characters(
    byte_tokenizer: Tokenizer,
) -> None:
    assert byte_tokenizer.encode("a\ud800") == byte_tokenizer.encode("a\ufffd")


def test_end_tokens_are_the_union_of_all_that_name_one(
    write_model: Callable[..., Path], byte_definition: tokenizers.Tokenizer
) -> None:
    tokenizer = Tokenizer.from_directory(
        write_model(
            byte_definition,
            "{{ '<|im_end|>' }}",
            tokenizer_config={"eos_token": {"content": "<|endoftext|>"}},
            generation_config={"eos_token_id": [1, 106]},
            config={"eos_token_id": 7, "text_config": {"eos_token_id": [8]}},
        )
    )

    named = {tokenizer.id_of("<|endoftext|>"), tokenizer.id_of("<|im_end|>")}
    assert tokenizer.eos_token_ids == named | {1, 106, 7, 8}


def test_a_turn_end_the_template_does_not_write_ends_nothing(
    write_model: Callable[..., Path], byte_definition: tokenizers.Tokenizer
) -> None:
    tokenizer = Tokenizer.from_directory(write_model(byte_definition, "{{ 'x' }}"))

    assert tokenizer.eos_token_ids == frozenset()


def test_the_end_of_one_message_of_a_turn_is_no_end_of_the_turn(
    write_model: Callable[..., Path], byte_definition: tokenizers.Tokenizer
) -> None:
    byte_definition.add_special_tokens(["<|end|>", "<|channel|>"])
    folder = write_model(byte_definition, "{{ '<|channel|>' }}{{ '<|end|>' }}")

    assert Tokenizer.from_directory(folder).eos_token_ids == frozenset()


def test_the_models_configuration_may_come_from_elsewhere(
    write_model: Callable[..., Path], byte_definition: tokenizers.Tokenizer
) -> None:
    folder = write_model(byte_definition, config={"eos_token_id": 7})

    tokenizer = Tokenizer.from_directory(folder, config={"eos_token_id": 9})

    assert tokenizer.eos_token_ids == {9}


def test_end_tokens_have_no_text_even_when_not_flagged_special(
    write_model: Callable[..., Path], byte_definition: tokenizers.Tokenizer
) -> None:
    letter = byte_definition.token_to_id("x")
    folder = write_model(byte_definition, generation_config={"eos_token_id": letter})

    assert Tokenizer.from_directory(folder).decode([letter]) == ""


@pytest.mark.parametrize(
    ("settings", "begins"),
    [({}, True), ({"add_bos_token": True}, True), ({"add_bos_token": False}, False)],
)
def test_bos_is_added_where_the_tokenizer_says_so(
    write_model: Callable[..., Path],
    bos_tokenizer: tokenizers.Tokenizer,
    settings: dict[str, bool],
    begins: bool,
) -> None:
    folder = write_model(
        bos_tokenizer, tokenizer_config={"bos_token": "<s>", **settings}
    )
    tokenizer = Tokenizer.from_directory(folder)
    bos = tokenizer.bos_token_id

    with_bos = tokenizer.encode("ab", add_special_tokens=True)
    assert (with_bos[0] == bos) is begins
    assert tokenizer.encode("<s>ab", add_special_tokens=True).count(bos or -1) == 1
    assert bos not in tokenizer.encode("ab")


def test_training_limits_in_the_file_do_not_cut_a_prompt(
    write_model: Callable[..., Path], byte_definition: tokenizers.Tokenizer
) -> None:
    byte_definition.enable_truncation(max_length=8)
    byte_definition.enable_padding(length=64)
    tokenizer = Tokenizer.from_directory(write_model(byte_definition))

    assert len(tokenizer.encode("abcdefghijkl")) == 12
    assert len(tokenizer.encode_literal("ab")) == 2


def test_a_missing_tokenizer_is_named(write_model: Callable[..., Path]) -> None:
    with pytest.raises(ModelKindError, match=r"has no tokenizer\.json"):
        Tokenizer.from_directory(write_model())


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '"\\ud800',
        "{}",
        '{"model": {"type": "BPE", "vocab": 3}}',
        '{"model": {"type": "None", "vocab": {}}, "added_tokens": [{"id": 1}]}',
        '{"version": "1.0", "added_tokens": [], "model": {"type": "Odd", "vocab": {}}}',
    ],
)
def test_a_damaged_tokenizer_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")

    with pytest.raises(IntegrityError, match=r"tokenizer\.json"):
        Tokenizer.from_directory(tmp_path)


def test_a_damaged_configuration_is_named(
    write_model: Callable[..., Path], byte_definition: tokenizers.Tokenizer
) -> None:
    folder = write_model(byte_definition)
    (folder / "generation_config.json").write_bytes(b"\xff{}")

    with pytest.raises(IntegrityError, match=r"generation_config\.json"):
        Tokenizer.from_directory(folder)


def test_eight_threads_share_one_tokenizer(any_tokenizer: Tokenizer) -> None:
    text = "the fox <|im_end|> jumps "
    expected = any_tokenizer.encode(text), any_tokenizer.encode_literal(text)
    shown = any_tokenizer.decode(expected[1])
    start = threading.Barrier(8)
    failures: list[str] = []

    def work() -> None:
        start.wait()
        for _ in range(200):
            stream = StreamDetokenizer(any_tokenizer)
            token_ids = any_tokenizer.encode_literal(text)
            streamed = [stream.add(token_id) for token_id in token_ids]
            if (any_tokenizer.encode(text), token_ids) != expected:
                failures.append("encode")
            if any_tokenizer.decode(token_ids) != shown:
                failures.append("decode")
            if "".join(streamed) + stream.flush() != shown:
                failures.append("stream")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failures
