# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest
import tiny

from splashpy.cli import main
from splashpy.drafting.drafter import Proposal
from splashpy.engine import cycle
from splashpy.engine.sequence import Sequence


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("pair")
    target = tiny.write_model(folder / "target")
    return str(target), str(tiny.write_drafter(folder / "draft"))


def verify(pair: tuple[str, str], *flags: str) -> int:
    target, draft = pair
    return main(["verify", target, "--draft", draft, "--max-tokens", "20", *flags])


def test_an_untrained_drafter_is_identical_and_exits_with_0(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(pair, "-n", "3") == 0
    printed = capsys.readouterr()
    assert printed.out == "3 prompts: 3 identical\n"
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
    assert document["sampling"]["passed"] is True
    assert document["sampling"]["drafted"] == 2000


def test_a_broken_acceptance_rule_ends_with_5_and_says_where(
    pair: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = cycle.decide

    def decide(
        sequence: Sequence, logits: mx.array, proposal: Proposal, position: int
    ) -> mx.array:
        verdict = sound(sequence, logits, proposal, position)
        if not len(proposal):
            return verdict
        first = proposal.token_ids[:1]
        kept = mx.maximum(verdict[:1], 1)
        return mx.concatenate([kept, verdict[1:2], first, verdict[3:]])

    monkeypatch.setattr(cycle, "decide", decide)
    assert verify(pair, "-n", "1") == 5
    printed = capsys.readouterr()
    assert "E-LOSSLESS" in printed.err
    assert "first at token 1" in printed.err
    assert "1 mismatch at token 1" in printed.out


def test_prompts_come_from_a_file(
    pair: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("first question\n\nsecond question\n")
    assert verify(pair, "--prompts", str(prompts)) == 0
    assert capsys.readouterr().out == "2 prompts: 2 identical\n"


@pytest.mark.parametrize(
    ("flags", "code", "needle"),
    [
        (["--no-draft"], 2, "exclude each other"),
        (["--prompts", "/no/such/file"], 2, "/no/such/file"),
        (["--full"], 2, "--full goes with --files"),
        (["--block-size", "9", "--no-lookup"], 2, "8 rows"),
        (["--race"], 2, "100 columns"),
        (["--files", "--full"], 2, "no recorded digests"),
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
    assert main(["verify", pair[0], "--no-draft"]) == 2
    assert "drafting is off: --no-draft" in capsys.readouterr().err


def test_sizes_and_headers_are_checked(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", pair[0], "--files"]) == 0
    assert "sizes and headers are right" in capsys.readouterr().out
