# SPDX-License-Identifier: Apache-2.0
"""What a request asks, from words, files and standard input."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.cli import prompt
from splashpy.errors import InputFileError


@pytest.mark.parametrize(
    ("words", "model", "rest"),
    [
        ((), None, ()),
        (("demo",), "demo", ()),
        (("demo", "Hello", "you"), "demo", ("Hello", "you")),
        (("Name three colours.",), None, ("Name three colours.",)),
        (("two\nlines", "more"), None, ("two\nlines", "more")),
        (("a/b@main", "x"), "a/b@main", ("x",)),
        (("",), None, ("",)),
    ],
)
def test_a_first_word_with_white_space_is_no_model(
    words: tuple[str, ...], model: str | None, rest: tuple[str, ...]
) -> None:
    assert prompt.split_model(words) == (model, rest)


def test_files_come_first_then_words_then_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("one\n")

    text = prompt.typed_text(["what", "is", "this?"], [str(file)], "piped\n")

    assert text == "notes.txt:\n```\none\n```\n\nwhat is this?\n\npiped"


def test_standard_input_keeps_its_inner_lines_and_indent() -> None:
    assert prompt.typed_text([], [], "  a\n\n  b\n") == "  a\n\n  b"


@given(st.text(alphabet="`a\n", max_size=40))
def test_a_file_is_fenced_with_more_backquotes_than_it_has(content: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "f"
        file.write_text(content)
        lines = prompt.quote_file(str(file)).split("\n")

    fence = lines[1]
    assert set(fence) == {"`"}
    assert lines[-1] == fence
    assert fence not in content


def test_instructions_come_from_a_file_after_an_at_sign(tmp_path: Path) -> None:
    file = tmp_path / "s.txt"
    file.write_text("Be brief.")

    assert prompt.read_system(f"@{file}") == "Be brief."
    assert prompt.read_system("Be brief.") == "Be brief."


def test_a_missing_file_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InputFileError) as caught:
        prompt.read_text(str(tmp_path / "none.txt"))

    assert "none.txt cannot be read" in caught.value.message
    assert caught.value.why == "No such file or directory"


def test_a_file_that_is_not_text_is_refused_with_the_byte(tmp_path: Path) -> None:
    file = tmp_path / "x.bin"
    file.write_bytes(b"ab\xff")

    with pytest.raises(InputFileError) as caught:
        prompt.read_text(str(file))

    assert caught.value.why == "byte 2 is 0xff"


def test_instructions_stand_before_the_question() -> None:
    asked = prompt.ask("Hi", system="Be brief.")

    assert [message["role"] for message in asked.messages] == ["system", "user"]
