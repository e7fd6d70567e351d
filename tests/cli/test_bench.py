# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import tiny
from bench.fake_endpoint import deltas, serving
from commandline import Call, Start, finish, read_until

from splashpy.bench import leg
from splashpy.errors import OfflineError

Pair = tuple[str, str]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("pair")
    target = tiny.write_model(folder / "target")
    return str(target), str(tiny.write_drafter(folder / "draft"))


@pytest.fixture(autouse=True)
def short_answers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny model answers in less time than is usually measured."""
    monkeypatch.setattr(leg, "SHORTEST_SECONDS", 0.0)


def words(pair: Pair, *flags: str) -> list[str]:
    target, draft = pair
    return ["bench", target, "--draft", draft, "-n", "2", "--max-tokens", "16", *flags]


def test_json_is_one_document_with_speed_ups_and_intervals(
    pair: Pair, call: Call
) -> None:
    done = call(*words(pair, "--arms", "draft,plain", "--trials", "2", "--json"))
    assert (done.code, done.err) == (0, "")
    found = done.json
    assert found["schema"] == "splashpy.bench/1"
    assert found["complete"] is True
    assert found["error"] is None
    speedup = found["speedup"]
    assert speedup["low"] <= speedup["geomean"] <= speedup["high"]
    assert speedup["worst_low"] <= speedup["worst"] <= speedup["worst_high"]
    assert speedup["worst"] <= speedup["geomean"]
    assert (speedup["prompts"], speedup["pairs"]) == (2, 4)
    assert found["texts"] == {"compared": 4, "near_ties": 0, "mismatches": 0}
    arms = found["suites"]["quick"]["arms"]
    assert {arm: figures["output_tokens"] for arm, figures in arms.items()} == {
        "draft": 64,
        "plain": 64,
    }
    assert arms["plain"]["tau"] == 1.0
    assert found["environment"]["blas"] == "reference"
    assert found["settings"]["draft"]["state"] == "active"
    assert found["settings"]["engine"] == {"draft": pair[1]}, "as asked, no places"
    assert found["counters"]["vllm:generation_tokens"] == 64


def test_the_result_is_a_table_and_one_line_for_each_claim(
    pair: Pair, call: Call
) -> None:
    done = call(*words(pair, "--trials", "1"))
    assert done.code == 0
    heads, *rest = done.out.splitlines()
    assert heads.split("\t")[:3] == ["suite", "arm", "tok/s"]
    assert [line.split("\t")[1] for line in rest[:2]] == ["draft", "plain"]
    assert rest[2].startswith("speed-up ")
    assert "one repeat (inconclusive)" in rest[2]
    assert rest[3].startswith("texts: 2 of 2 as plain decoding writes them")
    assert "blas            reference" in done.err


def test_a_directory_keeps_everything_and_a_run_goes_on_there(
    pair: Pair, call: Call, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    flags = words(pair, "--trials", "1", "--out", str(out))
    assert call(*flags, "--plot").code == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "bench.json",
        "committed.svg",
        "report.md",
        "requests.jsonl",
        "speedup.svg",
    ]
    record = (out / "requests.jsonl").read_text()
    lines = [json.loads(line) for line in record.splitlines()]
    assert len(lines) == 1 + 4
    # Cut in the middle of the last question, as a killed run leaves it.
    (out / "requests.jsonl").write_text(record[: record.rindex("{", 0, -200)])

    again = call(*flags)
    assert again.code == 0
    assert "going on after 2 answers" in again.err
    record = (out / "requests.jsonl").read_text()
    resumed = [json.loads(line) for line in record.splitlines()]
    assert resumed[:3] == lines[:3]
    assert len(resumed) == 1 + 4

    other = call(*flags, "--max-tokens", "17")
    assert other.code == 2
    assert "holds a run with other settings" in other.err
    assert "max_tokens differ" in other.err


def doctored(path: Path, out: Path, factor: float) -> str:
    """A document whose speed-up was ``factor`` times that of another."""
    found: Any = json.loads(path.read_text())
    found["speedup"]["geomean"] *= factor
    found["speedup"]["spread"] = 0.0
    found["environment"]["machine"] = "another one"
    out.write_text(json.dumps(found))
    return str(out)


def test_a_regression_ends_with_5_and_more_of_the_same_does_not(
    pair: Pair, call: Call, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    flags = words(pair, "--trials", "1", "--out", str(out))
    assert call(*flags).code == 0
    document = out / "bench.json"

    same = call(*flags, "--compare", str(document))
    assert same.code == 0
    assert "speedup.geomean: " in same.out
    assert "+0.0%" in same.out

    faster = doctored(document, tmp_path / "faster.json", 1.5)
    worse = call(*flags, "--compare", faster)
    assert worse.code == 5
    assert "speedup.geomean fell  [E-REGRESSION]" in worse.err
    told = call(*flags, "--compare", faster, "--json")
    assert told.code == 5
    assert told.json["error"]["code"] == "E-REGRESSION"
    assert told.json["compared"][0]["change"] == pytest.approx(-1 / 3)
    assert call(*flags, "--compare", faster, "--max-regression", "40%").code == 0

    slower = doctored(document, tmp_path / "slower.json", 0.5)
    assert call(*flags, "--compare", slower).code == 0


def test_a_changed_text_ends_with_5(pair: Pair, call: Call, broken_rule: None) -> None:
    # Lookup that was asked for drafts at every match, however long a pass takes.
    flags = ("--lookup", "--trials", "1", "-n", "4", "--max-tokens", "40")
    done = call("bench", pair[0], *flags)
    assert done.code == 5
    assert re.search(r"drafts changed \d of 4 texts  \[E-LOSSLESS\]", done.err)
    assert "speed-up" in done.out


def test_one_arm_and_long_prompts_can_be_measured_alone(pair: Pair, call: Call) -> None:
    flags = ("--suite", "context", "--contexts", "300", "--arms", "plain")
    done = call(*words(pair, *flags, "--trials", "1", "--json"))
    assert done.code == 0
    assert done.json["speedup"] is None
    plain = done.json["suites"]["context"]["arms"]["plain"]
    assert (plain["requests"], plain["tau"]) == (1, 1.0)


def test_questions_come_from_the_hub(
    pair: Pair, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "test.jsonl"
    file.write_text("".join(f'{{"problem": "{n} + 1?"}}\n' for n in range(9)))
    monkeypatch.setattr(
        "splashpy.package.datasets.dataset_file",
        lambda repo, name, *, offline: (file, f"commit of {repo}"),
    )
    done = call(*words(pair, "--suite", "math500", "--trials", "1", "--json"))
    assert done.code == 0
    commits = done.json["settings"]["suite_commits"]
    assert commits == {"math500": "commit of HuggingFaceH4/MATH-500"}
    assert len(done.json["prompts"]) == 2

    file.write_text('{"other": 1}\n')
    broken = call(*words(pair, "--suite", "math500"))
    assert broken.code == 5
    assert "not made as expected" in broken.err


def test_a_suite_that_is_not_here_needs_the_network(pair: Pair, call: Call) -> None:
    done = call(*words(pair, "--suite", "gsm8k"))
    assert done.code == OfflineError.exit_code
    assert "openai/gsm8k" in done.err


@pytest.mark.parametrize(
    ("flags", "needle"),
    [
        (["--plot"], "--plot needs --out DIR"),
        (["--contexts", "2K"], "--contexts goes with --suite context"),
        (["--arms", "draft,draft"], "draft,plain"),
        (["--arms", "fast"], "draft,plain"),
        (["--max-regression", "200%"], "a percentage below 100"),
        (["--suite", "context", "--contexts", "8K"], "do not fit"),
        (["--suite", "context", "--contexts", "12"], "at least 256"),
        (["--suite", "none"], "quick, gsm8k"),
        (["--no-draft"], "there is no option --no-draft"),
    ],
)
def test_what_cannot_be_done_is_said(
    pair: Pair, flags: list[str], needle: str, call: Call
) -> None:
    done = call(*words(pair, *flags))
    assert done.code == 2
    assert needle in done.err


def test_what_cannot_be_compared_is_said_before_the_model_is_loaded(
    pair: Pair, call: Call, tmp_path: Path
) -> None:
    file = tmp_path / "other.json"
    assert call(*words(pair, "--compare", str(file))).code == 3
    file.write_text('{"schema": "splashpy.verify/1"}')
    assert (
        "not a document of splashpy bench"
        in call(*words(pair, "--compare", str(file))).err
    )
    file.write_text('{"schema": "splashpy.bench/1", "settings": {"model": "other"}}')
    done = call(*words(pair, "--compare", str(file)))
    assert done.code == 2
    assert "measured different things" in done.err
    assert "loading" not in done.err


def test_nothing_to_measure_is_an_error(pair: Pair, call: Call) -> None:
    done = call("bench", pair[0], "--no-lookup")
    assert done.code == 2
    assert "there are no drafts to measure  [E-USAGE]" in done.err


@pytest.mark.e2e
def test_ctrl_c_finishes_the_question_and_keeps_what_there_is(
    pair: Pair, start: Start, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    flags = ("--trials", "1000", "--out", str(out), "--json", "-v")
    process = start(*words(pair, *flags))
    file = out / "requests.jsonl"
    while not file.exists() or file.read_text().count("\n") < 5:
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    read_until(process, b"stopping", of="stderr")
    code, text, _ = finish(process)

    assert code == 10
    found = json.loads(text)
    assert found["complete"] is False
    assert json.loads((out / "bench.json").read_text()) == found
    arms = found["suites"]["quick"]["arms"]
    assert arms["draft"]["requests"] == arms["plain"]["requests"] >= 2
    assert "stopped before its end" in (out / "report.md").read_text()


ANSWERED = deltas("four", " tokens", usage={"prompt_tokens": 9, "completion_tokens": 4})


def test_an_endpoint_is_measured_alone_and_by_several_and_goes_on(
    call: Call, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with serving(lambda _: ANSWERED) as server:
        flags = ["bench", "--url", server.url, "-n", "2", "--concurrency", "1,2"]
        flags += ["--out", str(out), "--json"]
        first = call(*flags, "--trials", "2")
        asked = len(server.asked)
        record = (out / "requests.jsonl").read_text()
        lines = record.splitlines(keepends=True)
        # What a run that was killed in its second trial leaves.
        (out / "requests.jsonl").write_text("".join(lines[:-2]) + lines[-1][:40])
        again = call(*flags, "--trials", "2")
        assert len(server.asked) - asked == 1 + 4, "one to warm up, and one trial"
    assert (first.code, again.code) == (0, 0)
    arms = first.json["suites"]["quick"]["arms"]
    assert {arm: found["requests"] for arm, found in arms.items()} == {
        "url": 4,
        "url x2": 4,
    }
    assert len((out / "requests.jsonl").read_text().splitlines()) == 1 + 8
    assert again.json["complete"] is True
    assert again.json["suites"]["quick"]["arms"]["url"]["output_tokens"] == 16


@pytest.mark.e2e
def test_ctrl_c_keeps_the_whole_trials_of_an_endpoint(
    start: Start, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with serving(lambda _: ANSWERED) as server:
        flags = ("--trials", "1000000", "--out", str(out), "--json", "-v", "-n", "1")
        process = start("bench", "--url", server.url, *flags)
        file = out / "requests.jsonl"
        while not file.exists() or file.read_text().count("\n") < 3:
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        code, text, _ = finish(process)
    assert code == 10
    found = json.loads(text)
    assert found["complete"] is False
    kept = file.read_text().count("\n") - 1
    assert found["suites"]["quick"]["arms"]["url"]["requests"] == kept
    assert json.loads((out / "bench.json").read_text()) == found
