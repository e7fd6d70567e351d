# SPDX-License-Identifier: Apache-2.0
"""What requests do, and what was given up for want of memory, as people see it."""

from __future__ import annotations

from typing import Any

from server_kit import Running, until

from splashpy.cli.servers import _row, status_of
from splashpy.protocol import Log, Phases, Shed
from splashpy.server.registry import RunningServer


def test_status_metrics_and_ps_tell_who_was_set_aside_and_why(serve: Any) -> None:
    server: Running = serve()
    engine = server.endpoint.engine
    server.endpoint.active = 1  # an engine with one lane works on one
    for event in (
        Phases(queued=2, decode=0, suspended=1),
        Shed(level="critical", action="states", held=1 << 20),
        Shed(level="critical", action="suspend", held=1 << 30, id="r", tokens=900),
        Log(level="warn", text="memory is short"),
        Log(level="info", text="of no interest"),
    ):
        server.loop.call_soon_threadsafe(engine._take, event)
    until(lambda: "memory is short" in server.log)

    status = server.get("/status").json
    metrics = server.get("/metrics").body.decode()
    there = RunningServer(
        port=server.port, host="127.0.0.1", pid=7, model="m", version="1", started=0.0
    )
    row = _row(there, status_of(there, None))

    assert status["phases"]["suspended"] == 1
    assert status["phases"]["queued"] == 2
    states, text = status["memory"]["sheds"]
    assert (states["action"], states["bytes"]) == ("states", 1 << 20)
    assert (text["action"], text["tokens"], text["level"]) == (
        "suspend",
        900,
        "critical",
    )
    assert text["seconds_ago"] >= 0
    assert 'splashpy_requests_in_phase{phase="suspended"} 1\n' in metrics
    assert 'splashpy_requests_in_phase{phase="decode"} 0\n' in metrics
    assert "0/1 +1 suspended" in row
    assert "of no interest" not in server.log
    server.endpoint.active = 0
