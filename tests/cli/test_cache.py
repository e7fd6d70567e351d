# SPDX-License-Identifier: Apache-2.0
"""``splashpy cache``: prompts survive the process, and a miss explains itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny

Call = Callable[..., Any]

RULES = " ".join(f"Rule {i}: be kind and brief." for i in range(20))


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(tiny.write_model(tmp_path / "tiny", max_position_embeddings=2048))


@pytest.fixture
def ask(call: Call, model: str, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Ask as one process would, with a system prompt; the JSON result."""

    def run(system: str, *words: str) -> dict[str, Any]:
        (tmp_path / "system.txt").write_text(system)
        options = ("--json", "--max-tokens", "4", "--temp", "0", *words)
        system = f"@{tmp_path / 'system.txt'}"
        result = call("run", model, *options, "-s", system, "-p", "Hello")
        assert result.code == 0, result.err
        return json.loads(result.out)

    return run


@pytest.fixture
def warm(call: Call, model: str, tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Read a system prompt ahead of time; the JSON result."""

    def run(text: str) -> dict[str, Any]:
        (tmp_path / "warm.txt").write_text(text)
        result = call("cache", "warm", str(tmp_path / "warm.txt"), model, "--json")
        assert result.code == 0, result.err
        return json.loads(result.out)

    return run


def test_a_system_prompt_read_ahead_is_restored_by_the_next_process(
    warm: Callable, ask: Callable, call: Call
) -> None:
    told = warm(RULES)
    assert told["cached_tokens"] == 0
    assert told["prompt_tokens"] > len(RULES)
    usage = ask(RULES)["usage"]
    assert usage["cached"] >= len(RULES)
    listed = json.loads(call("cache", "ls", "--json").out)["entries"]
    assert [entry["identity"]["model_type"] for entry in listed] == ["llama"]
    assert listed[0]["tokens"] >= len(RULES)
    shown = json.loads(call("cache", "show", listed[0]["id"][:4], "--json").out)
    assert shown["places"]


def test_why_names_the_message_and_the_character_that_changed(
    warm: Callable, ask: Callable, call: Call
) -> None:
    warm(RULES)
    changed = RULES.replace("Rule 12: be kind", "Rule 12: be rude")
    ask(changed)
    place = changed.index("rude")
    text = call("cache", "why", "--last", "1").out
    assert f"message 1 (system), character {place}: is 'rude" in text
    assert "was 'kind" in text
    lookup = json.loads(call("cache", "why", "--last", "1", "--json").out)["lookups"][0]
    assert (lookup["where"]["message"], lookup["where"]["character"]) == (1, place)
    assert lookup["reason"] == "departs"
    assert lookup["tier"] == "disk"


def test_another_kv_format_is_another_namespace(
    call: Call, tmp_path: Path, warm: Callable, ask: Callable
) -> None:
    warm(RULES)
    assert ask(RULES, "--kv", "bf16")["usage"]["cached"] > 0
    assert ask(RULES, "--no-prefix-cache")["usage"]["cached"] == 0
    assert ask(RULES, "--cache-disk", "0")["usage"]["cached"] == 0


def test_weights_that_were_replaced_are_another_namespace(
    warm: Callable, ask: Callable, model: str
) -> None:
    warm(RULES)
    tiny.write_model(Path(model), seed=3, max_position_embeddings=2048)
    assert ask(RULES)["usage"]["cached"] == 0


def test_a_request_with_its_messages_can_be_read_ahead(
    call: Call, model: str, tmp_path: Path, ask: Callable
) -> None:
    system = {"role": "system", "content": RULES}
    request = {"messages": [system, {"role": "user", "content": "Hello"}]}
    (tmp_path / "request.json").write_text(json.dumps(request))
    result = call("cache", "warm", str(tmp_path / "request.json"), model)
    assert result.code == 0
    assert "tokens are kept" in result.err
    usage = ask(RULES)["usage"]
    assert usage["cached"] >= usage["prompt"] - 2


@pytest.mark.parametrize("text", ["", "[]", '{"prompt": "x"}', "[1]"])
def test_a_file_that_asks_nothing_is_refused(
    text: str, call: Call, model: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.json").write_text(text)
    result = call("cache", "warm", str(tmp_path / "bad.json"), model)
    assert result.code == 2
    assert "bad.json" in result.err


def test_without_a_cache_nothing_can_be_read_ahead(
    call: Call, model: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("text")
    for switch in ("--no-prefix-cache", "--cache-disk=0"):
        result = call("cache", "warm", str(tmp_path / "a.txt"), model, switch)
        assert result.code == 2
        assert "nothing can be kept" in result.err


def test_a_damaged_record_is_found_and_deleted(
    warm: Callable, call: Call, clean_environment: Path
) -> None:
    warm(RULES)
    assert call("cache", "verify").code == 0
    record = next((clean_environment / "cache" / "kv").glob("*/b/*/*"))
    data = record.read_bytes()
    record.write_bytes(data[:-3] + b"abc")
    result = call("cache", "verify", "--json")
    assert result.code == 5
    (row,) = json.loads(result.out)["damaged"]
    assert row["file"] == str(record)
    assert not record.exists()
    assert call("cache", "verify").code == 0


def test_a_damaged_record_costs_a_warning_and_never_the_answer(
    warm: Callable, call: Call, model: str, clean_environment: Path
) -> None:
    words = ("run", model, "--max-tokens", "4", "--temp", "0", "-s", RULES, "Hello")
    expected = call(*words, "--no-prefix-cache").out
    warm(RULES)
    for record in (clean_environment / "cache" / "kv").glob("*/*/*/*.spkv"):
        record.write_bytes(record.read_bytes()[:-3] + b"abc")
    result = call(*words)
    assert (result.code, result.out) == (0, expected)
    assert result.err.count("warning:") == 2  # the other: the answer was cut off
    assert "damaged records of kept prompts deleted" in result.err


def test_clearing_asks_and_then_leaves_nothing(
    warm: Callable, call: Call, clean_environment: Path
) -> None:
    warm(RULES)
    refused = call("cache", "clear")
    assert refused.code == 2
    assert "--yes" in refused.err
    cleared = call("cache", "clear", "--yes", "--json")
    assert json.loads(cleared.out)["freed_bytes"] > 1000
    assert list((clean_environment / "cache" / "kv").iterdir()) == []
    assert "nothing is kept" in call("cache").err
    assert call("cache", "clear", "ab").code == 2


def test_nothing_was_looked_up_yet(call: Call) -> None:
    result = call("cache", "why")
    assert (result.code, result.out) == (0, "")
    assert "no lookup was written down" in result.err
