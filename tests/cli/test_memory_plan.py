# SPDX-License-Identifier: Apache-2.0
"""What does not fit is refused before anything is written; what fits is told once."""

from __future__ import annotations

import json
import re

import mlx.core as mx
import pytest
import tiny
from commandline import Call


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny.write_model(tmp_path_factory.mktemp("model")))


def test_too_little_memory_ends_with_4_and_an_empty_stdout(
    model: str, call: Call
) -> None:
    done = call("run", model, "-p", "hello", "--max-memory", "100M")
    assert (done.code, done.out) == (4, "")
    assert "100.0 MB may be used  [E-FIT]" in done.err
    assert "workspace 150" in done.err
    assert "loading" not in done.err


def test_what_else_the_process_holds_is_not_the_models(model: str, call: Call) -> None:
    others = mx.zeros(48 << 20, dtype=mx.int32)  # more than the model may
    mx.eval(others)
    flags = ("--max-memory", "151.1M", "--max-context", "256", "--no-draft")
    done = call("run", model, "-p", "hello", "--max-tokens", "4", *flags)
    assert (done.code, others.nbytes) == (0, 192 << 20)


def test_a_context_that_does_not_fit_names_the_largest_that_does(
    model: str, call: Call
) -> None:
    # A token of the tiny target takes 1 kB; 512 do not fit into the 300 kB left.
    flags = ("--max-memory", "151.1M", "--max-context", "512", "--no-draft")
    done = call("run", model, "-p", "hello", "--max-tokens", "4", *flags, "--json")
    assert done.code == 4
    error = done.json["error"]
    assert error["code"] == "E-FIT"
    found = re.search(r"--max-context (\d+)", error["fix"][0])
    assert found, error
    fitting = (*flags[:2], "--max-context", found[1], "--no-draft")
    again = call("run", model, "-p", "hello", "--max-tokens", "4", *fitting)
    assert again.code == 0


def test_the_variable_stands_in_for_the_flag(
    model: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPLASHPY_MAX_MEMORY", "100M")
    assert call("run", model, "-p", "hello").code == 4


def test_verbose_prints_the_plan_once(model: str, call: Call) -> None:
    flags = ("--max-memory", "2G", "--max-tokens", "2", "--json", "-v")
    done = call("run", model, "-p", "hello", *flags)
    assert done.code == 0
    assert json.loads(done.out)["finish_reason"] == "length"
    (line,) = [line for line in done.err.splitlines() if line.startswith("memory ")]
    assert re.search(r"weights [\d.]+ kB \+ draft 0 B \+ workspace 150\.\d MB", line)
    assert line.endswith(" of 2.0 GB")
