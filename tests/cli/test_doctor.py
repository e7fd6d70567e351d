# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from splashpy.cli import main
from splashpy.kernels import metal


@pytest.fixture(autouse=True)
def without_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a machine without Metal says, on every machine."""
    monkeypatch.setattr(metal, "use_metal", lambda: False)


def test_doctor_says_that_there_is_no_metal_here(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "there is no Metal GPU here" in out
    assert out.startswith("device   ")


def test_doctor_lists_what_every_kernel_must_move(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "--kernels", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "splashpy.doctor/1"
    assert found["metal"] is False
    assert found["limit"]["bandwidth"] > 0
    assert found["cycle"]["bytes"] == pytest.approx(17e9, rel=0.05)
    assert {row["operation"] for row in found["kernels"]} == {
        *("conv_prepare", "conv_finish", "add_rms_norm", "candidate_selector"),
        *("top_tokens", "target_topk", "accept", "qmm_rows", "gated_rows"),
        *("attention_rows", "attention_rows_q8"),
        *("gated_delta_verify", "gated_delta_prework"),
    }
    for row in found["kernels"]:
        assert row["verdict"] is None
        assert row["bytes"] > 0
        assert row["least_seconds"] > 0


def test_the_table_names_the_limit_of_a_cycle(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "--kernels"]) == 0
    out = capsys.readouterr().out
    assert "no Metal" in out
    assert "one cycle of a Qwen3.8-27B pair in 4 bits: 16.99 GB" in out


def test_sustain_needs_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--sustain", "3"]) == 2
    assert "--sustain goes with --kernels" in capsys.readouterr().err
