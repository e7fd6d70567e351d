# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from package.hub_server import HubServer, Repository

from splashpy.bench.distribution import SamplingTest
from splashpy.bench.lossless import Comparison
from splashpy.cli import main
from splashpy.cli.progress import ProgressLine
from splashpy.cli.signals import Interrupts
from splashpy.cli.verdict import Evidence


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("pair")
    target = tiny.write_model(folder / "target")
    return str(target), str(tiny.write_drafter(folder / "draft"))


@pytest.fixture(scope="module")
def repeating(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of one prompt that gives lookup something to find."""
    file = tmp_path_factory.mktemp("prompts") / "repeating.txt"
    file.write_text("the fox jumps over the dog. " * 4)
    return str(file)


def verify(pair: tuple[str, str], *flags: str) -> int:
    target, draft = pair
    return main(["verify", target, "--draft", draft, "--max-tokens", "20", *flags])


def lookup(pair: tuple[str, str], *flags: str) -> int:
    return main(["verify", pair[0], "--max-tokens", "20", *flags])


def drafted(line: str) -> int:
    """Tokens drafted, as the end of the result says."""
    found = re.search(r"; [\d,]+ of ([\d,]+) drafted tokens accepted$", line.strip())
    assert found, line
    return int(found[1].replace(",", ""))


def test_an_untrained_drafter_is_identical_and_exits_with_0(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(pair, "-n", "3") == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("3 prompts: 3 identical; ")
    assert drafted(printed.out) > 0
    assert "What makes a good cup of tea?" in printed.err


def test_json_holds_every_comparison_and_the_sampling_test(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(pair, "-n", "2", "--json", "--sampling-test") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "splashpy.verify/1"
    assert document["draft"]["state"] == "active"
    assert [row["outcome"] for row in document["prompts"]] == ["identical"] * 2
    assert document["identical"] == 2
    assert document["drafted"] == sum(row["drafted"] for row in document["prompts"])
    assert all(row["drafted"] > 0 for row in document["prompts"])
    assert document["error"] is None
    assert document["sampling"]["passed"] is True
    assert document["sampling"]["drafted"] == 2000


def test_seeded_texts_are_told_beside_the_greedy_ones(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(pair, "-n", "1", "--seeds", "2", "--temp", "0.7") == 0
    printed = capsys.readouterr()
    greedy, seeded = printed.out.splitlines()
    assert greedy.startswith("1 prompt: 1 identical; ")
    assert seeded.startswith("2 seeded texts: 2 identical; ")
    assert drafted(seeded) > 0
    assert "20 tokens of seed 2; " in printed.err


def test_a_rule_that_is_broken_for_seeds_is_found_with_the_seed(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str], broken_rule: None
) -> None:
    flags = ("-n", "1", "--seeds", "1", "--no-lookup", "--json")
    assert verify(pair, *flags) == 5
    document = json.loads(capsys.readouterr().out)
    [row] = document["seeded"]
    assert (row["outcome"], row["seed"]) == ("mismatch", 1)
    assert row["gap"] > row["tolerance"]
    assert document["mismatch"] == 2


def test_a_broken_acceptance_rule_ends_with_5_and_says_where(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str], broken_rule: None
) -> None:
    assert verify(pair, "-n", "1", "--no-lookup") == 5
    printed = capsys.readouterr()
    assert "E-LOSSLESS" in printed.err
    assert "first at token 1" in printed.err
    assert "1 mismatch at token 1" in printed.out


def test_lookup_alone_is_proved_with_drafts(
    pair: tuple[str, str], repeating: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lookup(pair, "--prompts", repeating) == 0
    assert drafted(capsys.readouterr().out) > 0


def test_a_broken_rule_is_found_by_lookup_alone(
    pair: tuple[str, str],
    repeating: str,
    capsys: pytest.CaptureFixture[str],
    broken_rule: None,
) -> None:
    assert lookup(pair, "--prompts", repeating) == 5
    assert "E-LOSSLESS" in capsys.readouterr().err


def test_a_difference_in_json_is_one_document_with_the_error_in_it(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str], broken_rule: None
) -> None:
    assert verify(pair, "-n", "1", "--json") == 5
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "splashpy.verify/1"
    assert document["mismatch"] == 1
    assert document["error"]["code"] == "E-LOSSLESS"
    assert set(document["error"]) == {"code", "message", "why", "fix"}


@pytest.mark.parametrize("run", [verify, lookup])
def test_without_one_draft_nothing_is_proved(
    run: Callable[..., int], pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    # The first token is the prefill's, the second the only one of its pass.
    flags = ("-n", "2", "--max-tokens", "2")
    assert run(pair, *flags) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "nothing is proved: not one token was drafted  [E-USAGE]" in printed.err
    assert "no draft in 2 prompts with 4 answer tokens" in printed.err
    assert "--prompts FILE" in printed.err

    assert run(pair, *flags, "--json") == 2
    document = json.loads(capsys.readouterr().out)
    assert document["identical"] == 2
    assert document["error"]["code"] == "E-USAGE"


def test_draws_without_one_draft_prove_nothing_either() -> None:
    draws = SamplingTest(
        draws=2000, drafted=0, accepted=0, p_drafted=0.5, p_plain=0.5, bins=9
    )
    fault = evidence(Comparison(outcome="identical", tokens=9, drafted=3), draws)
    assert "not one token was drafted" in fault["message"]
    assert "no draft in 2,000 draws" in fault["why"]


def test_a_text_that_ended_early_has_no_gap_in_json() -> None:
    ended = Comparison(outcome="mismatch", tokens=9, drafted=3, at=4, gap=math.inf)
    proof = Evidence(model="m", draft={}, texts=["a"], comparisons=[ended])
    assert proof.fields()["prompts"][0]["gap"] is None


def evidence(comparison: Comparison, sampled: SamplingTest) -> dict[str, Any]:
    """The error of a proof with one prompt."""
    proof = Evidence(
        model="m",
        draft={"reason": ""},
        texts=["a"],
        comparisons=[comparison],
        sampled=sampled,
    )
    return proof.fields()["error"]


def test_prompts_come_from_a_file(
    pair: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("first question\n\nsecond question\n")
    assert verify(pair, "--prompts", str(prompts)) == 0
    assert capsys.readouterr().out.startswith("2 prompts: 2 identical; ")


@pytest.mark.parametrize(
    ("flags", "code", "needle"),
    [
        (["--no-draft"], 2, "there is no option --no-draft"),
        (["--temp", "0.7"], 2, "--temp goes with --seeds"),
        (["--seeds", "1", "--temp", "0"], 2, "--temp 0 leaves nothing to a seed"),
        (["--block-size", "1"], 2, "leaves no drafts to compare with"),
        (["--prompts", "/no/such/file"], 3, "/no/such/file cannot be read  [E-FILE]"),
        (["--full"], 2, "--full goes with --files"),
        (["--block-size", "9", "--no-lookup"], 2, "8 rows"),
        (["--race"], 2, "100 columns"),
        (["--files", "--full"], 2, "no recorded digests"),
        (["--files", "--race"], 2, "exclude each other"),
        (["--files", "--sampling-test"], 2, "exclude each other"),
    ],
)
def test_what_cannot_be_done_is_said(
    pair: tuple[str, str],
    flags: list[str],
    code: int,
    needle: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert verify(pair, *flags) == code
    assert needle in capsys.readouterr().err


def test_a_drafter_for_another_target_is_refused_with_both_numbers(
    pair: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tiny.write_drafter(tmp_path / "other", num_target_layers=9)
    assert main(["verify", pair[0], "--draft", str(other)]) == 3
    printed = capsys.readouterr().err
    assert "E-PAIR" in printed
    assert "9 target layers" in printed
    assert "has 4" in printed


def test_nothing_to_compare_is_an_error(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", pair[0], "--no-lookup"]) == 2
    assert "there are no drafts to compare with  [E-USAGE]" in capsys.readouterr().err


def test_the_terminal_of_a_race_is_looked_at_before_the_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["verify", "no-such-model", "--race"]) == 2
    assert "[E-TTY]" in capsys.readouterr().err


def test_the_page_shows_what_verify_does_without_an_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["verify", "--help-all"]) == 0
    page = capsys.readouterr().out
    assert re.search(r"--max-tokens .*\[256\]", page)
    assert re.search(r"--lookup .*\[always\]", page)
    assert "--no-draft" not in page


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What a command says of how far it is; Ctrl-C comes with the first of it."""
    told: list[Any] = []

    def update(_: ProgressLine, event: Any) -> None:
        told.append(event)
        signal.raise_signal(signal.SIGINT)

    previous = {number: signal.getsignal(number) for number in STOPPING}
    monkeypatch.setattr(ProgressLine, "update", update)
    monkeypatch.setattr(Interrupts, "_end", lambda _: None)
    yield told
    for number, handler in previous.items():
        signal.signal(number, handler)


STOPPING = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize(
    "words",
    [
        ("verify", "MODEL", "--files", "--full"),
        ("verify", "MODEL"),
        ("bench", "MODEL"),
        ("bench", "MODEL", "--concurrency", "2"),
        ("doctor", "--load", "MODEL"),
    ],
    ids=" ".join,
)
def test_ctrl_c_ends_a_check_or_a_load_at_its_next_step(
    words: tuple[str, ...],
    packed: str,
    steps: list[Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([word.replace("MODEL", packed) for word in words]) == 130
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "error:" not in printed.err
    assert len(steps) == 1


def test_ctrl_c_ends_the_download_of_a_drafter(
    pair: tuple[str, str], server: HubServer, steps: list[Any]
) -> None:
    files = {path.name: path.read_bytes() for path in Path(pair[1]).iterdir()}
    server.repositories["owner/drafter"] = Repository(files)

    assert main(["verify", pair[0], "--draft", "owner/drafter"]) == 130
    assert "map" not in [step.phase for step in steps], "nothing was loaded"


@pytest.fixture(scope="module")
def packed(pair: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The target as a package, whose files have recorded digests."""
    output = str(tmp_path_factory.mktemp("packed") / "package")
    assert main(["pack", pair[0], "-o", output, "--no-check", "-q"]) == 0
    return output


def test_sizes_and_headers_are_checked(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", pair[0], "--files"]) == 0
    assert "sizes and headers are right" in capsys.readouterr().out
