# SPDX-License-Identifier: Apache-2.0
"""Chat requests, and what a stream of chunks says."""

from __future__ import annotations

from typing import Any

from server_kit import Reply, Running

HI = [{"role": "user", "content": "hi"}]
CALL = (
    "<tool_call>\n<function=look>\n<parameter=where>\nhere\n</parameter>\n"
    "<parameter=depth>\n2\n</parameter>\n</function>\n</tool_call>"
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "parameters": {
                "type": "object",
                "properties": {
                    "where": {"type": "string"},
                    "depth": {"type": "integer"},
                },
            },
        },
    }
]


def chat(server: Running, **fields: Any) -> Reply:
    body = {"model": "local", "messages": HI, **fields}
    return server.post("/v1/chat/completions", body)


def deltas(reply: Reply) -> list[dict[str, Any]]:
    chunks = [event for event in reply.events if isinstance(event, dict)]
    return [c["choices"][0]["delta"] for c in chunks if c["choices"]]
