# SPDX-License-Identifier: Apache-2.0
"""litellm, which speaks the dialects of both SDKs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scripted_engine import Script
from server_kit import Running

Ask = Callable[..., Any]
PROVIDERS = pytest.mark.parametrize("provider", ["openai", "anthropic"])


@PROVIDERS
def test_streams(ask: Ask, server: Running, script: Script, provider: str) -> None:
    # Without asking for it, Anthropic's dialect does not think.
    script.say("Paris in spring.<|im_end|>")
    if provider == "openai":
        script.say("</think>Paris in spring.<|im_end|>")

    assert ask(f"stream {provider}", server.url) == "Paris in spring."


@PROVIDERS
def test_reads_that_a_prompt_is_too_long(
    ask: Ask, server: Running, provider: str
) -> None:
    found = ask(f"too_long {provider}", server.url)

    assert found == "ContextWindowExceededError"
