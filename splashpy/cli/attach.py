# SPDX-License-Identifier: Apache-2.0
"""Whether a chat talks with a server that already has its model.

Two copies of one model must not be loaded by accident: a server of this machine that
serves the model is used, unless options of the chat need an engine of their own.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from splashpy.cli.invocation import Invocation
from splashpy.cli.options import ENGINE
from splashpy.units import format_bytes

if TYPE_CHECKING:
    from splashpy.protocol import Load
    from splashpy.server.registry import RunningServer


def served(invocation: Invocation) -> list[RunningServer]:
    """The servers of this machine that have or load a model, and may be used."""
    given = invocation.given
    if given["no_attach"] or given["replay"] or _needs_own_engine(invocation):
        return []
    from splashpy.cli.servers import has_model, status_of
    from splashpy.server.registry import running

    key = given["api_key"]
    return [
        server
        for server in running(invocation.paths.state)
        if has_model(status_of(server, key))
    ]


def _needs_own_engine(invocation: Invocation) -> bool:
    """Whether an option was given that a running engine cannot take any more."""
    harmless = ("revision", "no_update_check")
    return any(invocation.given[name] for name in ENGINE if name not in harmless)


def server_of(servers: list[RunningServer], load: Load) -> RunningServer | None:
    """The server that has the model a chat would load."""
    names = (load.name, load.model)
    return next((server for server in servers if server.model in names), None)


def load_beside(
    invocation: Invocation, servers: list[RunningServer], load: Load
) -> bool:
    """Ask whether a second model may be loaded while others are served.

    Returns:
        Whether it may; always where nobody can be asked.
    """
    output = invocation.output
    keyboard = sys.stdin
    if not servers or invocation.given["yes"] or keyboard is None:
        return True
    if not (keyboard.isatty() and output.err.terminal):
        return True
    names = [server.model for server in servers]
    served_names = ", ".join(f"{s.model} (port {s.port})" for s in servers)
    sizes = _sizes(invocation, [load.name, *names])
    output.err.write(
        f"served already: {served_names}\n"
        f"load {load.name or load.model} beside it{sizes}? [y/N] "
    )
    return keyboard.readline().strip().lower() in ("y", "yes")


def _sizes(invocation: Invocation, names: list[str]) -> str:
    """How much the models take together, where that is known of all."""
    from splashpy.package.library import Library

    known = {m.name: m.size_bytes for m in Library(invocation.paths).installed()}
    if not all(name in known for name in names):
        return ""
    return f", {format_bytes(sum(known[name] for name in names))} together"
