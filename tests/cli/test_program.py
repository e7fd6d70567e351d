# SPDX-License-Identifier: Apache-2.0
"""The table of commands, help pages, and what is said about mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commandline import Call

from splashpy import __version__
from splashpy.cli import commands, models, program
from splashpy.cli.page import PageCommand, render
from splashpy.cli.topics import TOPICS

COMMANDS = list(commands.listed())


@pytest.mark.parametrize("words", [(), ("-h",), ("--help",)])
def test_without_a_command_the_table_is_printed(
    call: Call, words: tuple[str, ...]
) -> None:
    result = call(*words)

    lines = result.out.splitlines()
    assert (result.code, result.err) == (0, "")
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    for name, row in commands.listed().items():
        family = f"splashpy {row.part_of or name}"
        assert family in result.out
        assert name.removeprefix(row.part_of).split()[0] in result.out or row.part_of


@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_page_fits_a_terminal_and_has_examples(call: Call, name: str) -> None:
    result = call(name, "--help")

    lines = result.out.splitlines()
    assert result.code == 0
    assert lines[0].startswith(f"Usage: splashpy {name}")
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 80
    assert len(re.findall(rf"^  .*splashpy {name}", result.out, re.M)) >= 2


@pytest.mark.parametrize("name", COMMANDS)
def test_help_all_adds_rare_options_but_no_hidden_ones(call: Call, name: str) -> None:
    everything = call(name, "--help-all").out

    assert set(call(name, "-h").out.splitlines()) <= set(everything.splitlines())
    assert max(map(len, everything.splitlines())) <= 80
    assert "--replay" not in everything
    assert everything == call("help", name).out


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_row_leads_to_a_command(name: str) -> None:
    assert isinstance(program.load(name), PageCommand)


def test_the_version_is_one_line_and_more_with_v(call: Call) -> None:
    assert call("--version").out == f"splashpy {__version__}\n"

    detail = call("-v", "--version").out
    assert re.search(r"^Python   3\.", detail, re.M)
    assert re.search(r"^mlx      \d", detail, re.M)
    assert re.search(r"^platform \S", detail, re.M)


def test_a_mistyped_command_gets_near_names(call: Call) -> None:
    result = call("shwo")

    assert result.code == 2
    assert "there is no command 'shwo'  [E-USAGE]" in result.err
    assert "splashpy show" in result.err


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("flags", [(), ("--files",), ("--json",)])
def test_a_model_nobody_knows_is_no_bug_of_any_command(
    call: Call, name: str, flags: tuple[str, ...]
) -> None:
    words = ("hi",) if name == "run" else ()
    result = call(name, "no-such-model", *words, *flags)

    assert "E-INTERNAL" not in result.out + result.err
    assert result.code in ((0, 2) if name == "list" else (2, 3))


def test_a_mistyped_option_gets_near_names(call: Call) -> None:
    result = call("run", "demo", "hi", "--max-token", "4")

    assert result.code == 2
    assert "there is no option --max-token" in result.err
    assert "--max-tokens" in result.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show",), "MODEL is missing"),
        (("pull",), "MODEL... is missing"),
        (("run", "demo", "hi", "--temp"), "option '--temp' requires an argument"),
        (("show", "demo", "more"), "unexpected extra argument"),
        (("--bogus",), "there is no option --bogus"),
    ],
)
def test_other_mistakes_are_told_in_a_few_lines(
    call: Call, words: tuple[str, ...], said: str
) -> None:
    result = call(*words)

    assert result.code == 2
    assert said in result.err
    assert "Traceback" not in result.err
    assert len(result.err.splitlines()) <= 5


def test_a_mistake_in_json_mode_is_a_document_on_stdout(call: Call) -> None:
    result = call("run", "demo", "hi", "--temp", "9", "--json")

    assert (result.code, result.err) == (2, "")
    assert result.json["schema"] == "splashpy.error/1"
    assert result.json["error"]["code"] == "E-USAGE"
    assert set(result.json["error"]) == {"code", "message", "why", "fix", "detail"}


def test_an_unexpected_exception_is_told_with_the_path_of_its_traceback(
    call: Call, monkeypatch: pytest.MonkeyPatch, clean_environment: Path
) -> None:
    monkeypatch.setattr(models.LIST, "run", _fail)
    result = call("list")

    log = clean_environment / "log" / "error.log"
    assert result.code == 1
    assert "ZeroDivisionError: by nothing  [E-INTERNAL]" in result.err
    assert str(log) in result.err
    assert "Traceback" not in result.err
    assert "ZeroDivisionError: by nothing" in log.read_text()


def test_debug_shows_the_traceback(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.LIST, "run", _fail)

    assert "Traceback" in call("list", "--debug").err


def test_an_unexpected_exception_is_told_even_where_no_log_can_be_written(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPLASHPY_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(models.LIST, "run", _fail)
    result = call("list")

    assert result.code == 1
    assert "--debug" in result.err


def test_an_interruption_is_quiet_and_ends_with_130(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models.LIST, "run", _interrupt)
    result = call("list")

    assert (result.code, result.out, result.err) == (130, "", "")


def test_help_explains_commands_codes_and_topics(call: Call) -> None:
    assert "Usage: splashpy run" in call("help", "run").out
    assert call("help", "ls").out == call("help", "list").out
    assert "E-FIT (exit code 4)" in call("help", "e-fit").out
    assert "HF_HUB_OFFLINE" in call("help", "env").out
    assert call("help", "--json").json["schema"] == "splashpy.help/1"


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_fits_a_terminal(call: Call, topic: str) -> None:
    lines = call("help", topic).out.splitlines()

    assert max(map(len, lines)) <= 80
    assert len(lines) <= 60


def test_unknown_help_is_a_usage_error_with_near_subjects(call: Call) -> None:
    result = call("help", "E-OFLINE")

    assert result.code == 2
    assert "splashpy help E-OFFLINE" in result.err


def test_a_page_shows_each_default(call: Call) -> None:
    run = program.load("run")
    assert isinstance(run, PageCommand)

    assert "[as trained]" in render(run, rare=False)


@pytest.mark.parametrize(
    ("name", "option", "meaning"),
    [
        ("list", "--all", "also models that can be pulled"),
        ("history", "--all", "export every conversation"),
        ("stop", "--all", "every server"),
        ("serve", "--port N", "port; 0 takes a free one [8000]"),
        ("launch", "--port N", "port of the server [the first that is ready]"),
        ("serve", "--api-key KEY", "key clients must show [none on this machine]"),
        ("bench", "--api-key KEY", "key of the endpoint [none]"),
        ("chat", "--api-key KEY", "key of the server [none]"),
    ],
)
def test_a_page_says_what_an_option_means_to_its_command(
    call: Call, name: str, option: str, meaning: str
) -> None:
    assert f"  {option:<28} {meaning}\n" in call(name, "--help-all").out


def _fail(*_: object) -> int:
    raise ZeroDivisionError("by nothing")


def _interrupt(*_: object) -> int:
    raise KeyboardInterrupt
