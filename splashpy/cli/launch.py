# SPDX-License-Identifier: Apache-2.0
"""``splashpy launch`` and ``splashpy integrations``: programs pointed at a server."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, replace

import click

from splashpy.cli.agents import AGENTS, Service, integrations
from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON, child_environment
from splashpy.cli.page import Page, PageCommand
from splashpy.cli.servers import answers, status_of
from splashpy.errors import (
    AuthorisationError,
    NoServerError,
    ProgramMissingError,
    UsageError,
)


def launch(invocation: Invocation) -> int:
    """Become an agent that uses a running server; returns only with ``--print-env``.

    Raises:
        UsageError: no such agent.
        NoServerError: no server is ready.
        ProgramMissingError: the agent is not installed.
    """
    name, words = invocation.given["agent"], invocation.given["words"]
    if name not in AGENTS:
        raise UsageError(
            f"{name!r} is no agent splashpy can start",
            why=f"it starts {', '.join(AGENTS)}",
            fix=["splashpy integrations tells how others are configured"],
        )
    agent = AGENTS[name]
    start = agent.start(_service(invocation))
    start = replace(start, command=(*start.command, *words))
    if invocation.given["print_env"]:
        if invocation.output.json:
            invocation.output.document("launch", asdict(start))
        else:
            invocation.output.result(start.script())
        return 0
    program = shutil.which(start.command[0])
    if program is None:
        raise ProgramMissingError(
            f"{agent.title} is not installed: there is no {start.command[0]!r} to run",
            fix=[f"install it: {agent.page}"],
        )
    environment = child_environment(start.environment, start.unset)
    return os.execve(program, list(start.command), environment)


def show_integrations(invocation: Invocation) -> int:
    """Print configurations for a running server; returns the exit code.

    Raises:
        NoServerError: no server is ready.
    """
    found = integrations(_service(invocation))
    if invocation.output.json:
        fields = [{"title": title, "text": text} for title, text in found]
        invocation.output.document("integrations", {"integrations": fields})
        return 0
    for number, (title, text) in enumerate(found):
        if number:
            invocation.output.result("")
        invocation.output.result(f"# {title}")
        for line in text.splitlines():
            invocation.output.result(line)
    return 0


def _service(invocation: Invocation) -> Service:
    """The server that is meant: the one at ``--port``, or the first that runs."""
    from splashpy.server.registry import running

    port, key = invocation.given["port"], invocation.given["api_key"]
    found = [
        server
        for server in running(invocation.paths.state)
        if port is None or server.port == port
    ]
    if not found:
        where = "" if port is None else f" at port {port}"
        raise NoServerError(
            f"no server runs{where}",
            fix=[f"splashpy serve{'' if port is None else f' --port {port}'}"],
        )
    told = [(server, status_of(server, key)) for server in found]
    ready = (item for item in told if answers(item[1]))
    server, status = next(ready, told[0])
    if not status:
        raise AuthorisationError(
            f"the server at port {server.port} does not tell its status",
            why="it wants its key",
            fix=["set SPLASHPY_API_KEY to the key it was started with"],
        )
    if not answers(status):
        raise NoServerError(
            f"the server at port {server.port} is {status.get('state')}",
            fix=["splashpy ps"],
        )
    return Service(
        url=server.url,
        model=server.model,
        context=status["model"]["ctx"],
        key=key or "",
    )


_DEFAULTS = {"port": "the first that is ready", "api_key": "none"}
_HELPS = {"port": "port of the server", "api_key": "key of the server"}

LAUNCH = PageCommand(
    "launch",
    page=Page(
        usage="AGENT [-- WORDS...]",
        summary="Start a coding agent that uses a running server.",
        examples=(
            ("splashpy launch claude", "Claude Code; codex, opencode and pi likewise"),
            (
                'splashpy launch codex -- exec "say hi"',
                "words after -- are the agent's",
            ),
            ("splashpy launch claude --print-env", "what would be set, for a shell"),
        ),
        notes=(
            "Needs a server that runs: splashpy serve. Only the agent's own process is",
            "configured; no file of yours is written.",
        ),
        defaults=_DEFAULTS,
        helps=_HELPS,
    ),
    arguments=(
        click.Argument(["agent"], metavar="AGENT"),
        click.Argument(["words"], nargs=-1, metavar="[WORDS...]"),
    ),
    options=("port", "api_key", "print_env", *COMMON),
    run=launch,
)

INTEGRATIONS = PageCommand(
    "integrations",
    page=Page(
        usage="",
        summary="Print configurations of editors and agents for a running server.",
        examples=(
            ("splashpy integrations", "all of them, filled in"),
            ("splashpy integrations --json", "for a program"),
        ),
        defaults=_DEFAULTS,
        helps=_HELPS,
    ),
    options=("port", "api_key", *COMMON),
    run=show_integrations,
)
