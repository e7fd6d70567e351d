# SPDX-License-Identifier: Apache-2.0
"""``splashpy run`` in this process, with recorded answers."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from commandline import Call, Record

from splashpy.protocol import Done, Failure, Piece, ToolDelta

ARGUMENTS = ("run", "-p", "hi", "--speed", "0", "--replay")


def test_the_answer_alone_goes_to_stdout_and_ends_its_line(
    call: Call, record: Record
) -> None:
    result = call(*ARGUMENTS, str(record("Red, ", "yellow, ", "blue.")))

    assert result.code == 0
    assert result.out == "Red, yellow, blue.\n"
    assert "loading" in result.err


def test_an_answer_that_ends_its_line_gets_no_second_newline(
    call: Call, record: Record
) -> None:
    assert call(*ARGUMENTS, str(record("Red.\n"))).out == "Red.\n"


@pytest.mark.parametrize(
    "said", ["[/INST] x", "[bold", "[1]", "[key=value]", "[/]", "a[b]c", "\\[x]"]
)
def test_markup_of_any_kind_is_printed_as_it_is(
    call: Call, record: Record, said: str
) -> None:
    assert call(*ARGUMENTS, str(record(said))).out == f"{said}\n"


def test_control_characters_stay_as_they_are_in_a_pipe(
    call: Call, record: Record
) -> None:
    assert call(*ARGUMENTS, str(record("a\x1b[2Jb"))).out == "a\x1b[2Jb\n"


def test_json_is_one_document_with_text_usage_timing_and_speculation(
    call: Call, record: Record
) -> None:
    pieces = (Piece("thinking", "t", "r"), Piece("Red", "t", "c"), Piece(".", "a", "c"))
    result = call(*ARGUMENTS, str(record(*pieces)), "--json")

    document = result.json
    assert next(iter(document)) == "schema"
    assert document["schema"] == "splashpy.run/1"
    assert (document["text"], document["reasoning"]) == ("Red.", "thinking")
    assert document["finish_reason"] == "stop"
    assert document["usage"]["completion"] == 5
    assert document["spec"]["accepted_per_position"] == [2, 0, 0, 0, 0, 0, 0]
    # (5 tokens - 1 of the first emission) / 0.5 s, by hand
    assert document["timing"]["decode_tok_s"] == 8.0
    assert result.err == ""


def test_a_rate_over_too_short_a_span_is_null(call: Call, record: Record) -> None:
    done = Done(id="a", reason="stop")
    result = call(*ARGUMENTS, str(record(instead=[done])), "--json")

    assert result.json["timing"]["decode_tok_s"] is None


def test_tool_calls_are_put_together_in_json(call: Call, record: Record) -> None:
    events = [
        ToolDelta(id="a", index=0, call_id="c1", name="look"),
        ToolDelta(id="a", index=0, args_delta='{"x":'),
        ToolDelta(id="a", index=0, args_delta="1}"),
        Done(id="a", reason="tool_calls"),
    ]
    result = call(*ARGUMENTS, str(record(instead=events)), "--json")

    assert result.json["tool_calls"] == [
        {"id": "c1", "name": "look", "arguments": '{"x":1}'}
    ]


def test_json_stream_is_every_event_on_a_line_of_its_own(
    call: Call, record: Record
) -> None:
    result = call(*ARGUMENTS, str(record("Red", ".")), "--json-stream")

    events = [json.loads(line)["ev"] for line in result.out.splitlines()]
    assert events == ["hello", "load", "ready", "prefill", "cycle", "cycle", "done"]
    assert result.err == ""


def test_stats_are_two_lines_on_stderr(call: Call, record: Record) -> None:
    result = call(*ARGUMENTS, str(record("Red", ".")), "--stats", "-q")

    assert result.err == (
        "3 tok · 4.0 tok/s · τ 2.00/8 · first token 0.10 s · prompt 20 (4 cached)"
        " · stop\n"
        "passes 0 plain, 1 drafted, 0 looked up · 0.5 plain steps saved, 0.0 lost\n"
    )


def test_reasoning_never_reaches_stdout(call: Call, record: Record) -> None:
    recording = str(record(Piece("hmm", "t", "r"), "Red."))

    hidden = call(*ARGUMENTS, recording, "-q")
    shown = call(*ARGUMENTS, recording, "-q", "--reasoning", "show")

    assert (hidden.out, hidden.err) == ("Red.\n", "")
    assert (shown.out, shown.err) == ("Red.\n", "hmm\n")


def test_extract_prints_the_first_block_and_extract_last_the_last(
    call: Call, record: Record
) -> None:
    recording = str(record("Try\n```py\nprint(1)\n```\nor\n", "~~~\nprint(2)\n~~~\n"))

    assert call(*ARGUMENTS, recording, "-x").out == "print(1)\n"
    assert call(*ARGUMENTS, recording, "--extract-last").out == "print(2)\n"


def test_extract_without_a_block_prints_nothing_and_fails(
    call: Call, record: Record
) -> None:
    result = call(*ARGUMENTS, str(record("No code.")), "-x")

    assert (result.code, result.out) == (1, "")
    assert "[E-EXTRACT]" in result.err


def test_verbose_says_who_drafts(call: Call, record: Record) -> None:
    assert "draft active, block 8" in call(*ARGUMENTS, str(record("Red.")), "-v").err


def test_no_stream_prints_the_same(call: Call, record: Record) -> None:
    assert call(*ARGUMENTS, str(record("Red", ".")), "--no-stream").out == "Red.\n"


def test_output_goes_to_the_file_and_nothing_is_left_beside_it(
    call: Call, record: Record, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    result = call(*ARGUMENTS, str(record("Red.")), "-o", str(folder / "a.txt"))

    assert (result.code, result.out) == (0, "")
    assert (folder / "a.txt").read_text() == "Red.\n"
    assert [path.name for path in folder.iterdir()] == ["a.txt"]


def test_a_failed_answer_leaves_the_old_output_file_alone(
    call: Call, record: Record, tmp_path: Path
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("before")
    failure = Failure(id="a", code="E-CONTEXT", message="too long", why="9 > 8")

    result = call(*ARGUMENTS, str(record(instead=[failure])), "-o", str(file))

    assert result.code == 4
    assert file.read_text() == "before"
    assert not list(tmp_path.glob(".a.txt*"))


def test_output_into_a_missing_directory_names_it(
    call: Call, record: Record, tmp_path: Path
) -> None:
    result = call(*ARGUMENTS, str(record("Red.")), "-o", str(tmp_path / "no/a.txt"))

    assert result.code == 3
    assert "no/a.txt cannot be written  [E-FILE]" in result.err


@pytest.mark.parametrize(
    ("reason", "word"), [("length", "--max-tokens"), ("context_full", "context")]
)
def test_a_cut_answer_warns_and_fails_only_when_asked_to(
    call: Call, record: Record, reason: str, word: str
) -> None:
    recording = str(record("Red", reason=reason))

    usual = call(*ARGUMENTS, recording)
    strict = call(*ARGUMENTS, recording, "--fail-on-length")

    assert usual.code == 0
    assert f"{word} and is cut off" in usual.err
    assert strict.code == 4
    assert strict.out == "Red\n"


def test_draft_colours_show_where_each_token_came_from(
    call: Call, record: Record
) -> None:
    pieces = (Piece("a", "t", "c"), Piece("b", "a", "c"), Piece("c", "l", "c"))
    result = call(
        *ARGUMENTS, str(record(*pieces)), "--draft-colors", "--color", "always"
    )

    assert result.out == "\x1b[4ma\x1b[0m\x1b[32mb\x1b[0m\x1b[36mc\x1b[0m\n"
    assert "accepted draft" in result.err


def test_draft_colours_are_silent_where_colours_are_not_allowed(
    call: Call, record: Record
) -> None:
    result = call(*ARGUMENTS, str(record("a")), "--draft-colors", "-q")

    assert (result.out, result.err) == ("a\n", "")


def test_a_failure_of_the_engine_keeps_its_words_code_and_exit_code(
    call: Call, record: Record
) -> None:
    failure = Failure(
        id="a",
        code="E-TEMPLATE",
        message="no template",
        why="line 3",
        fix=("use --raw",),
    )
    recording = str(record(instead=[failure]))

    told = call(*ARGUMENTS, recording, "-q")
    as_json = call(*ARGUMENTS, recording, "--json")

    assert told.code == as_json.code == 1
    assert told.err.splitlines() == [
        "error: no template  [E-TEMPLATE]",
        "why:   line 3",
        "fix:   use --raw",
        "more:  splashpy help E-TEMPLATE",
    ]
    assert as_json.json["schema"] == "splashpy.error/1"
    assert as_json.json["error"]["fix"] == ["use --raw"]


def test_an_error_amid_json_lines_is_a_line_too(call: Call, record: Record) -> None:
    failure = Failure(id="a", code="E-FIT", message="too big")
    result = call(*ARGUMENTS, str(record(instead=[failure])), "--json-stream")

    lines = [json.loads(line) for line in result.out.splitlines()]
    assert lines[-1]["error"]["code"] == "E-FIT"
    assert result.code == 4


def test_standard_input_alone_is_a_prompt(
    call: Call, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a diff\n"))

    assert call("run", "--speed", "0", "--replay", str(record("Red."))).code == 0


def test_nothing_to_ask_is_a_usage_error(call: Call) -> None:
    result = call("run", "demo")

    assert result.code == 2
    assert "there is no prompt  [E-USAGE]" in result.err


@pytest.mark.parametrize(
    "flags",
    [
        ("--raw", "-s", "x"),
        ("--raw", "--messages", "m.json"),
        ("--messages", "m.json", "-p", "x"),
        ("-x", "--extract-last"),
        ("--json", "--json-stream"),
        ("--draft", ".", "--no-draft"),
        ("--lookup", "--no-lookup"),
        ("--no-draft", "--lookup"),
        ("--no-draft", "--block-size", "4"),
        ("--no-draft", "--draft-bits", "4"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    call: Call, flags: tuple[str, ...]
) -> None:
    result = call("run", "demo", "hello", *flags)

    assert result.code == 2
    assert "exclude each other" in result.err + result.out


def test_generate_is_run(call: Call, record: Record) -> None:
    words = ("generate", *ARGUMENTS[1:])

    assert call(*words, str(record("Red."))).out == "Red.\n"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is not JSON"),
        ("{}", "is not an array"),
        ("[]", "is not an array"),
        ('[{"content": "x"}]', "message 1 has no role"),
    ],
)
def test_a_bad_file_of_messages_is_explained(
    call: Call, tmp_path: Path, content: str, complaint: str
) -> None:
    file = tmp_path / "m.json"
    file.write_text(content)
    result = call("run", "demo", "--messages", str(file))

    assert result.code == 2
    assert complaint in result.err
