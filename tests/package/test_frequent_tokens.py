# SPDX-License-Identifier: Apache-2.0
"""The list of frequent tokens beside a drafter: written, read, refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.errors import IntegrityError, ModelKindError
from splashpy.package.frequent_tokens import (
    FILE_NAME,
    frequent_tokens_text,
    read_frequent_tokens,
)


def write(directory: Path, token_ids: object) -> Path:
    (directory / FILE_NAME).write_text(json.dumps({"token_ids": token_ids}))
    return directory


def test_without_a_file_there_is_no_list(tmp_path: Path) -> None:
    assert read_frequent_tokens(tmp_path, vocab_size=10) is None


@given(st.sets(st.integers(0, 99), min_size=4).map(sorted))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, token_ids: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("drafter")
    text = frequent_tokens_text(token_ids, vocab_size=100, at_least=4)
    (directory / FILE_NAME).write_text(text)
    found = read_frequent_tokens(directory, vocab_size=100, at_least=4)
    assert found == tuple(token_ids)


@pytest.mark.parametrize(
    ("token_ids", "reason"),
    [
        ([3, 2, 5, 7], "must ascend without repetition, has 2 after 3"),
        ([2, 2, 5, 7], "must ascend without repetition, has 2 after 2"),
        ([2, 5, 7], "must list at least 4 tokens, lists 3"),
        (None, "must list at least 4 tokens, lists 0"),
        ([2, 5, 7, 100], "has 100, the drafter's vocabulary ends at 99"),
        ([-1, 5, 7, 9], "a list of integers of at least 0"),
        ([True, 5, 7, 9], "a list of integers of at least 0"),
        ([1.0, 5, 7, 9], "a list of integers of at least 0"),
        ("1 2 3 4", "must be a list"),
    ],
)
def test_a_bad_list_is_refused_with_the_reason(
    tmp_path: Path, token_ids: object, reason: str
) -> None:
    with pytest.raises(ModelKindError, match=reason) as caught:
        read_frequent_tokens(write(tmp_path, token_ids), vocab_size=100, at_least=4)
    assert str(tmp_path / FILE_NAME) in caught.value.message


def test_a_file_that_was_cut_short_is_damaged(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('{"token_ids": [1, 2')
    with pytest.raises(IntegrityError, match="not JSON"):
        read_frequent_tokens(tmp_path, vocab_size=100)


def test_a_list_that_would_be_refused_is_not_written() -> None:
    with pytest.raises(ValueError, match="at least 4 tokens, lists 1"):
        frequent_tokens_text([1], vocab_size=100, at_least=4)
