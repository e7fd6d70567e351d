# SPDX-License-Identifier: Apache-2.0
"""Anthropic's SDK for Python in an environment of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scripted_engine import Script
from server_kit import Running

Ask = Callable[..., Any]
CALL = (
    "<tool_call>\n<function=look>\n<parameter=where>\nhere\n</parameter>\n"
    "</function>\n</tool_call>"
)


@pytest.mark.parametrize("flow", ["create", "stream"])
def test_reads_thoughts_text_and_a_call(
    ask: Ask, server: Running, script: Script, flow: str
) -> None:
    script.say(f"Hm.</think>Look:{CALL}<|im_end|>", cached=3)

    found = ask(flow, server.url)

    assert found["blocks"] == [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "Look:"},
        {"type": "tool_use", "name": "look", "input": {"where": "here"}},
    ]
    assert found["stop"] == "tool_use"
    cached, written = found["usage"]
    assert cached == 3
    assert written > 0


def test_counts_tokens(ask: Ask, server: Running) -> None:
    # "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n", a byte a token
    # and each marker one.
    assert ask("count", server.url) > 20


def test_lists_the_models(ask: Ask, server: Running) -> None:
    assert ask("models", server.url)[0] == "maker/tiny"


def test_reads_that_a_prompt_is_too_long(ask: Ask, server: Running) -> None:
    assert ask("too_long", server.url).startswith("prompt is too long: ")
