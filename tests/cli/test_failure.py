# SPDX-License-Identifier: Apache-2.0
"""Errors as a person sees them, and the catalogue of their codes."""

from __future__ import annotations

import errno
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from commandline import Call, Record

from splashpy.cli.catalogue import CATALOGUE, EXIT_CODES
from splashpy.cli.failure import explain, lines
from splashpy.cli.output import Stream
from splashpy.errors import (
    CapacityError,
    EngineDiedError,
    InternalError,
    PackageError,
    RequestCancelled,
    SplashError,
    UsageError,
)
from splashpy.protocol import Failure

PLAIN = Stream(io.StringIO(), terminal=False, color=False)


def kinds(of: type[SplashError] = SplashError) -> Iterator[type[SplashError]]:
    for kind in of.__subclasses__():
        if kind is not RequestCancelled:  # never shown
            yield kind
            yield from kinds(kind)


def test_an_error_is_what_why_fix_and_more() -> None:
    error = CapacityError(
        "this model needs 31.2 GB, this machine allows 27.0 GB",
        why="weights 17.4 + draft 1.1 + state 12.7",
        fix=["splashpy chat --max-context 96K", "splashpy chat --no-draft", "a third"],
    )
    assert lines(error, PLAIN) == [
        "error: this model needs 31.2 GB, this machine allows 27.0 GB  [E-FIT]",
        "why:   weights 17.4 + draft 1.1 + state 12.7",
        "fix:   splashpy chat --max-context 96K",
        "       splashpy chat --no-draft",
        "more:  splashpy help E-FIT",
    ]


def test_without_a_reason_there_is_room_for_three_fixes() -> None:
    error = UsageError("no", fix=["a", "b", "c", "d"])

    assert len(lines(error, PLAIN)) == 5


def test_a_message_of_many_lines_becomes_one_and_a_long_reason_its_last() -> None:
    error = EngineDiedError("it\nended", why="loading\nValueError: bad\n")

    assert lines(error, PLAIN)[:2] == [
        "error: it ended  [E-ENGINE-DIED]",
        "why:   ValueError: bad",
    ]


def test_what_the_system_says_comes_without_pythons_number() -> None:
    error = UsageError("no", why=str(OSError(errno.EROFS, "Read-only", "/home")))

    assert lines(error, PLAIN)[1] == "why:   Read-only: '/home'"


def test_markup_and_escapes_in_a_message_do_nothing() -> None:
    terminal = Stream(io.StringIO(), terminal=True, color=True)
    shown = lines(UsageError("[/INST] \x1b[2J [bold"), terminal)[0]

    assert "[/INST]" in shown
    assert "[bold" in shown
    assert "\x1b[2J" not in shown


@pytest.mark.parametrize("kind", sorted(set(kinds()), key=lambda kind: kind.__name__))
def test_every_error_has_a_page_with_its_exit_code(
    call: Call, kind: type[SplashError]
) -> None:
    page = call("help", kind.code)

    assert page.code == 0
    assert f"{kind.code} (exit code {kind.exit_code})" in page.out
    assert kind.exit_code in EXIT_CODES


@pytest.mark.parametrize("code", CATALOGUE)
def test_a_failure_of_the_engine_ends_the_command_with_its_code(
    call: Call, record: Record, code: str
) -> None:
    recording = record(instead=[Failure(id="a", code=code, message="it", why="so")])
    result = call("run", "-p", "hi", "--speed", "0", "--replay", str(recording))

    assert result.code == CATALOGUE[code].exit_code
    assert f"error: it  [{code}]\nwhy:   so\n" in result.err


def test_every_page_belongs_to_an_error() -> None:
    assert set(CATALOGUE) == {kind.code for kind in kinds()}


TESTS = Path(__file__).resolve().parents[1]
GENERAL = ("cli/test_failure.py", "test_errors.py")


def test_every_error_is_met_by_a_test_of_what_raises_it() -> None:
    files = set(TESTS.rglob("test_*.py")) - {TESTS / name for name in GENERAL}
    told = "".join(path.read_text(encoding="utf-8") for path in files)

    for code in CATALOGUE:
        names = [kind.__name__ for kind in kinds() if kind.code == code]
        assert re.search(rf"\b({'|'.join([code, *names])})\b", told), code


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EACCES, "E-PERM"),
        (errno.EROFS, "E-PERM"),
        (errno.ENOTDIR, "E-PERM"),
        (errno.ENOSPC, "E-DISK"),
        (errno.EDQUOT, "E-DISK"),
        (errno.ENAMETOOLONG, "E-FILE"),
        (errno.EEXIST, "E-FILE"),
        (errno.EIO, "E-INTERNAL"),
    ],
)
def test_errors_of_the_system_get_a_code(number: int, code: str) -> None:
    told = explain(OSError(number, "why", "/some/file"), log=None)

    assert told.code == code
    assert "/some/file" in told.message


def test_a_bug_reported_by_another_room_gets_its_log_too(tmp_path: Path) -> None:
    error = InternalError("the chat failed")
    error.__cause__ = ZeroDivisionError("by nothing")

    assert str(tmp_path / "error.log") in explain(error, tmp_path).why
    assert "by nothing" in (tmp_path / "error.log").read_text()


def test_an_error_for_a_person_is_told_as_it_is(tmp_path: Path) -> None:
    error = PackageError("x")

    assert explain(error, tmp_path) is error
    assert not list(tmp_path.iterdir())
