# SPDX-License-Identifier: Apache-2.0
"""``splashpy verify --race``: two texts side by side."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any, cast

import pytest
import tiny
from commandline import Start, on_terminal

from splashpy.bench.race import Runner
from splashpy.cli.output import Stream, cells
from splashpy.cli.race import ROWS, Lanes

WIDTH = 41


def runner(text: str) -> Runner:
    """An arm that has written this and has ended."""
    nothing = cast("Any", None)
    return Runner(
        "plain", iter(()), nothing, text=text, token_ids=[1], seconds=1.0, finished=True
    )


@pytest.mark.parametrize(
    "text", ["日本語の文章です。" * 9, "día " * 40, "x" * 90, "a\tb"]
)
def test_every_line_is_as_wide_as_the_terminal(text: str) -> None:
    file = io.StringIO()
    Lanes(Stream(file, terminal=True, color=True), WIDTH).show(
        runner(text), runner(text[::-1])
    )
    lines = file.getvalue().replace("\x1b[K", "").splitlines()

    assert len(lines) == ROWS + 2
    assert {cells(line) for line in lines} == {WIDTH}
    left = "".join(line.partition(" │ ")[0] for line in lines[2:])
    assert re.sub(r"\s", "", left) == re.sub(r"\s", "", text)


@pytest.mark.e2e
def test_a_race_is_drawn_and_then_judged(start: Start, tmp_path: Path) -> None:
    target = str(tiny.write_model(tmp_path / "target"))
    draft = str(tiny.write_drafter(tmp_path / "draft"))
    words = ("--race", "-n", "1", "--max-tokens", "8", "--draft", draft)
    code, shown = on_terminal(start, "verify", target, *words, TERM="xterm")

    assert code == 0
    assert re.search(r"plain: 8 tok .* done +│ drafts: 8 tok .* done", shown)
    assert "1 prompt: 1 identical" in shown
