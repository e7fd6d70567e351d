# SPDX-License-Identifier: Apache-2.0
"""The progress line, with a clock of its own."""

from __future__ import annotations

import io

from splashpy.cli.output import Stream
from splashpy.cli.progress import ProgressLine
from splashpy.protocol import LoadProgress

MEGABYTE = 10**6


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def download(done: int) -> LoadProgress:
    return LoadProgress(
        phase="download", done=done * MEGABYTE, total=98 * MEGABYTE, unit="bytes"
    )


def line(
    clock: Clock, *, live: bool, keep: bool = False
) -> tuple[ProgressLine, io.StringIO]:
    file = io.StringIO()
    stream = Stream(file, terminal=live, color=False)
    return ProgressLine(stream, live=live, keep=keep, columns=60, clock=clock), file


def test_without_a_terminal_there_is_a_line_a_phase_and_one_every_ten_seconds() -> None:
    clock = Clock()
    progress, file = line(clock, live=False)
    for second in range(25):
        clock.now = float(second)
        progress.update(download(2 * second))
    progress.update(LoadProgress(phase="verify"))
    progress.close()

    assert file.getvalue().splitlines() == [
        "downloading 0 B of 98.0 MB",
        "downloading 20.0 MB of 98.0 MB · 2.0 MB/s · 39 s left",
        "downloading 40.0 MB of 98.0 MB · 2.0 MB/s · 29 s left",
        "checking",
    ]


def test_on_a_terminal_one_line_is_redrawn_and_cleared_at_the_end() -> None:
    clock = Clock()
    progress, file = line(clock, live=True)
    progress.update(download(1))
    clock.now = 0.05  # too soon to draw again
    progress.update(download(2))
    clock.now = 0.2
    progress.update(download(3))
    progress.close()

    assert file.getvalue() == (
        "\rdownloading 1.0 MB of 98.0 MB\x1b[K"
        "\rdownloading 3.0 MB of 98.0 MB\x1b[K"
        "\r\x1b[K"
    )


def test_the_last_step_of_a_phase_is_always_drawn_on_a_terminal() -> None:
    clock = Clock()
    progress, file = line(clock, live=True)
    progress.update(download(1))
    progress.update(download(98))

    assert "98.0 MB of 98.0 MB" in file.getvalue()


def test_verbose_keeps_the_last_line_of_each_phase() -> None:
    progress, file = line(Clock(), live=True, keep=True)
    progress.update(download(98))
    progress.update(LoadProgress(phase="verify"))
    progress.close()

    assert file.getvalue().count("\n") == 2


def test_a_line_never_fills_the_last_column_of_the_terminal() -> None:
    progress, file = line(Clock(), live=True)
    progress.update(LoadProgress(phase="map", item="x" * 200))

    assert len(file.getvalue().strip("\r").removesuffix("\x1b[K")) == 59


def test_the_name_of_an_item_cannot_command_the_terminal() -> None:
    progress, file = line(Clock(), live=True)
    progress.update(LoadProgress(phase="map", item="a\x1b[2Jb"))

    assert "\x1b[2J" not in file.getvalue()


def test_a_disabled_line_says_nothing() -> None:
    file = io.StringIO()
    progress = ProgressLine(Stream(file, terminal=True, color=True), enabled=False)
    progress.update(download(1))
    progress.prompt(1, 2)
    progress.close()

    assert file.getvalue() == ""


def test_a_training_says_how_far_it_is_how_long_it_takes_and_how_well_it_goes() -> None:
    progress, file = line(Clock(), live=False)
    progress.steps(120, 1400, 2.0, "loss 3.21")
    progress.steps(1400, 1400, 2.0, "loss 1.00")

    assert file.getvalue() == ("training 120 of 1,400 · 10 min 40 s left · loss 3.21\n")


def test_texts_that_were_there_before_do_not_count_as_speed() -> None:
    clock = Clock()
    progress, file = line(clock, live=False)
    progress.texts(900, 1000)
    clock.now = 20.0
    progress.texts(910, 1000)

    assert file.getvalue().splitlines() == [
        "writing texts 900 of 1,000",
        "writing texts 910 of 1,000 · 3 min 0 s left",
    ]
