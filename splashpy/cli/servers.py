# SPDX-License-Identifier: Apache-2.0
"""``splashpy ps`` and ``splashpy stop``: servers that run on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON
from splashpy.cli.page import Page, PageCommand
from splashpy.errors import NoServerError, ServerError, UsageError

if TYPE_CHECKING:
    from splashpy.server.registry import RunningServer

_ASK_SECONDS = 5.0
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.1
_HEADS = ("PORT", "PID", "MODEL", "STATE", "CONTEXT", "LANES", "REQUESTS", "UPTIME")


def ps(invocation: Invocation) -> int:
    """List the servers; returns the exit code."""
    from splashpy.server.registry import running

    key = invocation.given["api_key"]
    found = [
        (server, status_of(server, key)) for server in running(invocation.paths.state)
    ]
    if invocation.output.json:
        fields = [{**asdict(server), "status": status} for server, status in found]
        invocation.output.document("ps", {"servers": fields})
        return 0
    if not found:
        invocation.output.note("no server runs; splashpy serve starts one")
        return 0
    invocation.output.table(_HEADS, [_row(*item) for item in found])
    return 0


def stop(invocation: Invocation) -> int:
    """Stop servers and wait until they are gone; returns the exit code.

    Raises:
        UsageError: it is not clear which.
        NoServerError: none runs there.
        ServerError: one does not end.
    """
    servers = _wanted(invocation)
    for server in servers:
        with contextlib.suppress(ProcessLookupError):  # it ended by itself
            os.kill(server.pid, signal.SIGTERM)
    deadline = time.perf_counter() + _STOP_SECONDS
    for server in servers:
        _wait_gone(invocation, server, deadline)
        if not invocation.output.json:
            invocation.output.note(f"stopped the server at port {server.port}")
    if invocation.output.json:
        stopped = [asdict(server) for server in servers]
        invocation.output.document("stop", {"stopped": stopped})
    return 0


def _wanted(invocation: Invocation) -> list[RunningServer]:
    from splashpy.server.registry import running

    port, every = invocation.given["at"], invocation.given["every"]
    found = running(invocation.paths.state)
    if port is not None:
        if not port.isdecimal():
            raise UsageError(f"{port!r} is not a port", fix=["splashpy ps"])
        found = [server for server in found if server.port == int(port)]
        if not found:
            raise NoServerError(f"no server runs at port {port}", fix=["splashpy ps"])
    if not found:
        raise NoServerError("no server runs", fix=["splashpy serve"])
    if len(found) > 1 and not every:
        ports = ", ".join(str(server.port) for server in found)
        raise UsageError(
            f"{len(found)} servers run, at the ports {ports}",
            fix=[f"splashpy stop {found[0].port}", "splashpy stop --all"],
        )
    return found


def _wait_gone(invocation: Invocation, server: RunningServer, deadline: float) -> None:
    from splashpy.server.registry import running

    while server in running(invocation.paths.state):
        if time.perf_counter() > deadline:
            raise ServerError(
                f"the server at port {server.port} does not end",
                why=f"it was asked {_STOP_SECONDS:.0f} seconds ago",
                fix=[f"kill -9 {server.pid}"],
            )
        time.sleep(_POLL_SECONDS)


def status_of(server: RunningServer, key: str | None) -> dict[str, Any]:
    """What ``/status`` says; empty where it is not told."""
    request = urllib.request.Request(f"{server.url}/status")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    # Directly: a proxy of the environment has no business with this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_ASK_SECONDS) as answer:
            found = json.load(answer)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def answers(status: Mapping[str, Any]) -> bool:
    """Whether a server has its model, or loads it again when it is asked."""
    states = ("ready", "unloading", "unloaded", "recovering")
    return bool(status.get("ready")) and status.get("state") in states


def has_model(status: Mapping[str, Any]) -> bool:
    """Whether a server has its model, or will have it once it is loaded."""
    return answers(status) or status.get("state") == "loading"


def _row(server: RunningServer, status: dict[str, Any]) -> tuple[str, ...]:
    requests = status.get("requests", {})
    context = status.get("model", {}).get("ctx")
    uptime = status.get("uptime_s")
    return (
        str(server.port),
        str(server.pid),
        server.model,
        status.get("state", "unknown"),
        str(context or "-"),
        _lanes(status.get("queue", {}), status.get("phases", {})),
        str(requests.get("ok", "-")),
        "-" if uptime is None else _duration(uptime),
    )


def _lanes(queue: dict[str, Any], phases: dict[str, Any]) -> str:
    """Requests that run, of those that may at a time, and those set aside."""
    if "lanes" not in queue:
        return "-"
    aside = phases.get("suspended", 0)
    running = max(queue.get("running", 0) - aside, 0)
    return f"{running}/{queue['lanes']}" + f" +{aside} suspended" * (aside > 0)


def _duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    if hours >= 1:
        return f"{hours:.1f} h"
    return f"{minutes:.0f} min" if minutes >= 1 else f"{seconds:.0f} s"


PS = PageCommand(
    "ps",
    page=Page(
        usage="",
        summary="List the servers that run on this machine.",
        examples=(
            ("splashpy ps", "port, model, state and requests of each"),
            ("splashpy ps --json", "all they tell about themselves"),
        ),
        notes=("A server with a key tells its numbers to who shows it.",),
        defaults={"api_key": "none"},
        helps={"api_key": "key of the servers"},
    ),
    options=("api_key", *COMMON),
    run=ps,
)

STOP = PageCommand(
    "stop",
    page=Page(
        usage="[PORT]",
        summary="Stop a server; what it works on gets ten seconds.",
        examples=(
            ("splashpy stop", "the only one"),
            ("splashpy stop 8080", "the one at this port"),
            ("splashpy stop --all", "every one"),
        ),
    ),
    arguments=(click.Argument(["at"], required=False, metavar="[PORT]"),),
    options=("every", *COMMON),
    run=stop,
)
