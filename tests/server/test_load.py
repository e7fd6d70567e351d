# SPDX-License-Identifier: Apache-2.0
"""Many requests of every kind; some clients leave early, and nothing stays behind."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any

from scripted_engine import Script
from server_kit import Running, until

REQUESTS = 200
AT_ONCE = 8
TEXT = "Hm.</think>" + "word " * 10 + "<|im_end|>"
HI = [{"role": "user", "content": "hi"}]
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": HI}),
    ("/v1/messages", {"messages": HI, "max_tokens": 30}),
    ("/v1/responses", {"input": "hi"}),
    ("/v1/completions", {"prompt": "hi"}),
    ("/completion", {"prompt": "hi"}),
]


def ask(port: int, number: int) -> int:
    """One request; its status, or 0 where its client left before the answer."""
    chance = random.Random(number)
    path, body = chance.choice(BODIES)
    text = json.dumps({**body, "stream": chance.random() < 0.7})
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, text, {"Content-Type": "application/json"})
        leaves = chance.random()
        if leaves < 0.2:
            return 0
        response = connection.getresponse()
        response.read(chance.randrange(200) if leaves < 0.4 else None)
        return response.status
    finally:
        connection.close()


def test_requests_whose_clients_may_leave_leave_nothing_behind(
    server: Running, script: Script
) -> None:
    script.say(TEXT)
    before = server.get("/status").json

    with ThreadPoolExecutor(AT_ONCE) as pool:
        statuses = list(pool.map(lambda n: ask(server.port, n), range(REQUESTS)))

    # A place of somebody who left may still be taken.
    assert set(statuses) <= {0, 200, 429, 529}
    assert statuses.count(200) > REQUESTS / 4
    until(lambda: server.endpoint.active == 0)
    until(lambda: len(script.ended) == len(script.requests))
    assert len(server.endpoint.engine._running) == 0
    now = server.get("/status").json
    asked = sum(now["requests"].values()) - sum(before["requests"].values())
    assert asked <= REQUESTS
    assert (now["queue"]["running"], now["queue"]["waiting"]) == (0, 0)
    assert not any(now["phases"].values())
    assert server.get("/ready").status == 200
    assert "splashpy_requests_total" in server.get("/metrics").body.decode()
    assert server.post("/v1/chat/completions", {"messages": HI}).status == 200
