# SPDX-License-Identifier: Apache-2.0
"""Streams, colours, tables and JSON documents."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.cli.options import Environment
from splashpy.cli.output import Output, Stream, aligned, cells, cut, document


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("choice", "variables", "terminal", "color"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"TERM": "dumb"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_who_decides_about_colours(
    choice: str, variables: dict[str, str], *, terminal: bool, color: bool
) -> None:
    file = Terminal() if terminal else io.StringIO()

    assert Stream.open(file, choice, Environment(variables)).color is color


def test_text_from_elsewhere_is_disarmed_on_a_terminal_only() -> None:
    hostile = "\x1b]0;title\x07 \x1b[2J [bold]"

    on_terminal = Stream(Terminal(), terminal=True, color=True).safe(hostile)
    piped = Stream(io.StringIO(), terminal=False, color=False).safe(hostile)

    assert "\x1b" not in on_terminal
    assert "[bold]" in on_terminal
    assert piped == hostile


def test_a_closed_stream_swallows_what_is_written() -> None:
    stream = Stream.open(None, "always", Environment({}))
    stream.write("gone")

    assert not stream.color


def test_a_table_in_a_pipe_is_tab_separated_and_whole() -> None:
    output = piped_output()
    output.table(["MODEL", "SIZE"], [["x" * 200, "1 GB"]])

    assert written(output) == f"MODEL\tSIZE\n{'x' * 200}\t1 GB\n"


def test_a_table_on_a_terminal_is_aligned_and_shortened_to_its_width() -> None:
    lines = aligned(["MODEL", "SIZE"], [["a", "1 GB"], ["x" * 90, "20 GB"]], 40)

    assert lines[0].index("SIZE") == lines[1].index("1 GB")
    assert lines[2].endswith("…  20 GB")
    assert max(map(len, lines)) <= 40


@given(st.text(max_size=12), st.text(max_size=12), st.integers(16, 30))
def test_columns_stay_aligned_whatever_the_script(
    first: str, second: str, columns: int
) -> None:
    rows = [[f"日本語 {first}", "1"], [f"e\u0301 {second}", "2"]]
    lines = aligned(["TITLE", "N"], rows, columns)

    assert max(map(cells, lines)) <= columns
    assert {cells(line[:-1]) for line in lines} == {cells(lines[0][:-1])}


def test_a_wide_character_takes_two_columns_and_a_mark_none() -> None:
    assert (cells("日本"), cells("e\u0301"), cells("a\u200db")) == (4, 1, 2)
    assert (cut("日本語", 5), cut("日本語", 4), cut("日本", 4)) == (
        "日本…",
        "日…",
        "日本",
    )


def test_a_wide_table_is_not_shortened() -> None:
    lines = aligned(["MODEL", "SIZE"], [["x" * 90, "20 GB"]], None)

    assert lines[1] == "x" * 90 + "  20 GB"


def test_a_document_names_its_schema_first_and_is_utf8() -> None:
    text = document("show", {"name": "día", "path": "\udcff"})

    assert text.startswith('{\n  "schema": "splashpy.show/1"')
    assert text.endswith("}\n")
    assert json.loads(text)["name"] == "día"
    text.encode("utf-8")


def test_quiet_hides_notes_and_warnings() -> None:
    output = piped_output(quiet=True)
    output.note("a")
    output.warn("b")

    assert isinstance(output.err.file, io.StringIO)
    assert output.err.file.getvalue() == ""


def piped_output(*, quiet: bool = False) -> Output:
    out, err = (Stream(io.StringIO(), terminal=False, color=False) for _ in range(2))
    return Output(out=out, err=err, quiet=quiet)


def written(output: Output) -> str:
    assert isinstance(output.out.file, io.StringIO)
    return output.out.file.getvalue()
