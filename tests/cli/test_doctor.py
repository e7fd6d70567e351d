# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tiny
from commandline import Call

from splashpy.bench import health
from splashpy.cli import main
from splashpy.cli.health import Check, counts
from splashpy.engine import finer_costs, timing
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


def test_every_check_has_a_result_and_nothing_fails_on_a_sound_machine(
    call: Call,
) -> None:
    done = call("doctor", "--json")
    assert done.code == 0
    checks = {check["name"]: check for check in done.json["checks"]}
    assert checks.keys() >= {
        *("system", "Python", "MLX", "memory", "disk for models", "HF_TOKEN", "Hub"),
        *("models", "conversations", "terminal"),
    }
    assert {check["state"] for check in checks.values()} <= {"ok", "warn"}
    assert all(bool(c["fix"]) == (c["state"] != "ok") for c in checks.values())
    assert done.json["load"] is None


def test_a_key_is_never_shown(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    done = call("doctor")
    assert "hf_secret" not in done.out + done.err
    assert "HF_TOKEN" in done.out


def test_a_machine_that_computes_wrong_fails(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "computes", lambda: (False, "1 + 1 = 3"))
    done = call("doctor")
    assert done.code == 1
    assert "fail  MLX" in done.out
    assert "fix: pip install" in done.out


def test_a_warning_counts_only_where_it_is_to(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splashpy.engine.pressure.pressure", lambda: "warn")
    assert call("doctor").code == 0
    assert call("doctor", "--strict").code == 1


def test_a_damaged_model_and_a_damaged_file_of_conversations_are_named(
    call: Call, clean_environment: Path
) -> None:
    chats = clean_environment / "data" / "chats.db"
    chats.parent.mkdir(parents=True)
    chats.write_bytes(b"no database" * 1000)
    done = call("doctor", "--json")
    assert done.code == 1
    (check,) = [c for c in done.json["checks"] if c["state"] == "fail"]
    assert check["name"] == "conversations"
    assert chats.read_bytes() == b"no database" * 1000, "nothing is changed"


def test_load_decodes_a_little_and_keeps_what_cycles_cost(
    call: Call,
    tmp_path: Path,
    clean_environment: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(finer_costs, "ODD", float("inf"))  # whatever else runs
    monkeypatch.setattr(timing, "ALL_SECONDS", 1e9)
    target = str(tiny.write_model(tmp_path / "target"))
    draft = str(tiny.write_drafter(tmp_path / "draft"))
    found = call("doctor", "--load", target, "--draft", draft, "--json").json["load"]
    assert found["tokens"] == health.TOKENS
    assert found["draft"]["state"] == "active"
    widths = [rows for rows, _ in found["costs"]["passes"]]
    assert widths == [*range(2, 9), 12, 16, 24, 32], "everything is timed"
    assert found["timed"]["kept"] == []
    assert found["plan"]["total"] <= found["plan"]["budget"]
    needs, ledger = found["plan"]["needs"], found["ledger"]
    assert ledger["held"]["weights"] == needs["target"] + needs["draft"]
    assert (ledger["held"]["lanes"], ledger["refused"]) == (0, 0)
    kept = json.loads((clean_environment / "state" / "costs.json").read_text())
    assert len(kept["entries"]) == 1
    again = call("doctor", "--load", target, "--draft", draft)
    assert again.code == 0
    assert "loaded   in " in again.out
    assert "answered 16 tokens" in again.out
    assert re.search(r"^ledger   weights .* free; nothing refused$", again.out, re.M)
    assert "in plain steps: a pass of 2 rows " in again.out
    assert "timed    a plain step, 2 rows, " in again.out


def test_what_cannot_be_wired_here_is_said_in_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    done = call("doctor", "--wired", "weights")
    assert done.err.count("--wired weights has no effect: only macOS 15") == 1
    assert "wired" not in call("doctor", "--wired", "off").err


def test_checks_are_counted_by_state() -> None:
    checks = [Check("a", "ok", ""), Check("b", "warn", "", "c"), Check("d", "ok", "")]
    assert counts(checks) == {"ok": 2, "warn": 1, "fail": 0}


def test_an_address_that_does_not_answer_says_why() -> None:
    assert health.reaches("ftp://x", 1) == "not an address"
    assert health.reaches("http://127.0.0.1:9", 1)
