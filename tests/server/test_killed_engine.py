# SPDX-License-Identifier: Apache-2.0
"""A real engine process is killed while several requests are under way."""

from __future__ import annotations

import os
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tiny
from server_kit import Reply, Running, until

from splashpy.client.child import ChildClient
from splashpy.protocol import Load
from splashpy.server.settings import ServerSettings

pytestmark = pytest.mark.e2e

COMPLETIONS = "/v1/completions"
ENDLESS = 200_000  # tokens; minutes of work
BODIES = [
    {"prompt": "one", "max_tokens": 30, "temperature": 0},
    {"prompt": "two, a little longer", "max_tokens": 40, "temperature": 1, "seed": 7},
    {"prompt": "three", "max_tokens": 20, "temperature": 0, "stream": True},
]
STORY = {"prompt": "a story", "temperature": 1, "seed": 3, "ignore_eos": True}


def said(reply: Reply) -> str:
    if reply.headers["content-type"] == "application/json":
        return reply.json["choices"][0]["text"]
    chunks = [event for event in reply.events if isinstance(event, dict)]
    choices = [choice for event in chunks for choice in event.get("choices", [])]
    return "".join(choice["text"] for choice in choices)


def test_what_was_sent_stays_right_and_the_rest_comes_out_whole(tmp_path: Path) -> None:
    model = tiny.write_model(tmp_path, max_position_embeddings=2 * ENDLESS)
    load = Load(model=str(model), name="tiny")

    def connect() -> ChildClient:
        return ChildClient.spawn(tmp_path / "engine.log")

    with (
        Running(ServerSettings(model="tiny"), connect, load) as server,
        ThreadPoolExecutor(4) as pool,
    ):
        engine = server.wait_ready().endpoint.engine
        alone = [said(server.post(COMPLETIONS, body)) for body in BODIES]
        story = said(server.post(COMPLETIONS, {**STORY, "max_tokens": 60}))
        killed, begun = engine.vitals.pid, threading.Event()

        def heard(answer: bytes) -> None:
            # Stopped first, so that the others are under way when it is killed.
            if re.search(rb'"text":"[^"]', answer) and not begun.is_set():
                os.kill(killed, signal.SIGSTOP)
                begun.set()

        body = {**STORY, "max_tokens": ENDLESS, "stream": True}
        telling = pool.submit(server.listen, COMPLETIONS, body, heard)
        assert begun.wait(60)
        waiting = [pool.submit(server.post, COMPLETIONS, body) for body in BODIES]
        until(lambda: len(engine._running) == 4)
        os.kill(killed, signal.SIGKILL)

        told = telling.result()
        answers: list[Any] = [answer.result() for answer in waiting]
        status = server.get("/status").json["engine"]

    assert [answer.status for answer in answers] == [200] * 3
    assert [said(answer) for answer in answers] == alone
    text = said(told)
    whole = story.rstrip("\ufffd")  # the last character may have been cut
    assert text
    assert whole.startswith(text) or text.startswith(whole)
    assert told.events[-2]["error"]["code"] == "engine_recovering"
    assert (status["restarts"], status["replayed_requests"]) == (1, 3)
    assert status["pid"] != killed
