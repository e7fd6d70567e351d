# SPDX-License-Identifier: Apache-2.0
"""Flows of litellm: ``litellm_flows.py FLOW URL`` prints what came of one."""

from __future__ import annotations

import json
import sys
from typing import Any

import litellm  # pyright: ignore[reportMissingImports]

litellm.suppress_debug_info = True
TOO_LONG = "x" * 400_000


def stream(model: str, base: str) -> Any:
    chunks = litellm.completion(
        model=model,
        api_base=base,
        api_key="k",
        messages=[{"role": "user", "content": "hi"}],
        stream=True,
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def too_long(model: str, base: str) -> Any:
    try:
        litellm.completion(
            model=model,
            api_base=base,
            api_key="k",
            messages=[{"role": "user", "content": TOO_LONG}],
            max_retries=0,
        )
    except litellm.ContextWindowExceededError as error:
        return type(error).__name__


if __name__ == "__main__":
    wanted, url = sys.argv[1:]
    name, _, provider = wanted.partition(" ")
    flow = {"stream": stream, "too_long": too_long}[name]
    base_url = f"{url}/v1" if provider == "openai" else url
    print(json.dumps(flow(f"{provider}/local", base_url)))
