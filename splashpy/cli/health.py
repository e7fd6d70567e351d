# SPDX-License-Identifier: Apache-2.0
"""What ``splashpy doctor`` looks at besides kernels.

Every check has a result, what was found, and what helps where that is not as it should
be. ``fail``: splashpy will not work, or not as it is meant to; ``warn``: something is
slower or missing that nobody may need. Nothing is changed, and no key is ever shown.
"""

from __future__ import annotations

import contextlib
import platform
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from splashpy.cli.invocation import Invocation
from splashpy.cli.server_options import PORT
from splashpy.errors import PackageError, SplashError
from splashpy.units import format_bytes

State = Literal["ok", "warn", "fail"]

_OLDEST_MACOS = 14
_HUB = "https://huggingface.co"
_HUB_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Check:
    """One result.

    Attributes:
        name: of what was looked at.
        state: how it is.
        found: in a few words.
        fix: what helps; empty where nothing is wrong.
    """

    name: str
    state: State
    found: str
    fix: str = ""


def look_around(invocation: Invocation) -> list[Check]:
    """Every check, in the order people read them."""
    looks: tuple[Callable[[Invocation], Iterator[Check]], ...] = (
        _computer,
        _memory,
        _power,
        _disk,
        _network,
        _models,
        _servers,
        _conversations,
        _terminal,
    )
    return [check for look in looks for check in look(invocation)]


def _computer(_: Invocation) -> Iterator[Check]:
    from splashpy.bench.health import computes, has_metal, is_translated

    if sys.platform == "darwin":
        release = platform.mac_ver()[0]
        old = int(release.split(".")[0] or 0) < _OLDEST_MACOS
        yield Check(
            "system",
            "fail" if old else "ok",
            f"macOS {release}",
            f"macOS {_OLDEST_MACOS} or newer" if old else "",
        )
        if is_translated():
            fix = "a Python built for arm64, such as uv's or Homebrew's"
            yield Check("processor", "fail", "Python runs under Rosetta", fix)
        elif platform.machine() != "arm64":
            yield Check("processor", "fail", platform.machine(), "an Apple silicon Mac")
        else:
            yield Check("processor", "ok", "Apple silicon")
        if not has_metal():
            fix = "pip install --force-reinstall mlx"
            yield Check("Metal", "fail", "MLX finds no Metal GPU", fix)
    else:
        yield Check("system", "ok", f"{platform.system()}: MLX computes on the CPU")
    yield Check("Python", "ok", platform.python_version())
    sound, words = computes()
    yield Check("MLX", "ok" if sound else "fail", words, "" if sound else _REINSTALL)
    yield from _blas()


_REINSTALL = "pip install --force-reinstall mlx mlx-lm"


def _blas() -> Iterator[Check]:
    from splashpy import blas

    found = blas.prepare()
    if found.note:
        yield Check("BLAS", "warn", str(found), found.note)


def _memory(_: Invocation) -> Iterator[Check]:
    from splashpy.engine.pressure import pressure
    from splashpy.host.device import device

    machine = device("")
    level = pressure()
    size = format_bytes(machine.memory_bytes) if machine.memory_bytes else "unknown"
    gpu = (
        f", {format_bytes(machine.working_set_bytes)} for the GPU"
        if machine.working_set_bytes
        else ""
    )
    strained = level != "normal"
    yield Check(
        "memory",
        "warn" if strained else "ok",
        f"{size}{gpu}; pressure {level}",
        "close other applications before loading a model" if strained else "",
    )


def _power(_: Invocation) -> Iterator[Check]:
    from splashpy.bench.environment import environment

    facts = environment("")
    if "power" not in facts and "thermal" not in facts:
        return
    slow = []
    if facts.get("power", "AC Power") != "AC Power":
        slow.append("plug in the charger")
    if facts.get("low_power_mode") == "on":
        slow.append("switch low-power mode off")
    if facts.get("thermal", "no limit recorded") not in (
        "no limit recorded",
        "CPU speed limit 100 %",
    ):
        slow.append("let the Mac cool down")
    names = ("power", "low_power_mode", "thermal")
    words = ", ".join(facts[name] for name in names if facts.get(name))
    yield Check("power", "warn" if slow else "ok", words, "; ".join(slow))


def _disk(invocation: Invocation) -> Iterator[Check]:
    from splashpy.package import hub
    from splashpy.package.disk_space import MARGIN_BYTES, free_bytes

    places = {
        "models": invocation.paths.packages,
        "cache": invocation.paths.cache,
        "downloads": hub.cache_directory(),
    }
    for name, path in places.items():
        try:
            free = free_bytes(path)
        except OSError as error:
            yield Check(f"disk for {name}", "fail", f"{path}: {error.strerror}")
            continue
        little = free < 2 * MARGIN_BYTES
        yield Check(
            f"disk for {name}",
            "warn" if little else "ok",
            f"{format_bytes(free)} free at {path}",
            "splashpy rm MODEL, or splashpy cache clear" if little else "",
        )


def _network(invocation: Invocation) -> Iterator[Check]:
    from splashpy.bench.health import reaches

    key = "set" if invocation.environment.get("HF_TOKEN") else "not set"
    yield Check("HF_TOKEN", "ok", key)
    if invocation.offline:
        yield Check("Hub", "ok", "not asked: --offline or HF_HUB_OFFLINE")
        return
    url = invocation.environment.get("HF_ENDPOINT") or _HUB
    trouble = reaches(url, _HUB_SECONDS)
    fix = "what is installed works with --offline; behind a proxy set HTTPS_PROXY"
    if trouble:
        yield Check("Hub", "warn", f"{url}: {trouble}", fix)
    else:
        yield Check("Hub", "ok", f"{url} answers")


def _models(invocation: Invocation) -> Iterator[Check]:
    from splashpy.package.integrity import check_files
    from splashpy.package.library import Library
    from splashpy.package.model_directory import ModelDirectory

    installed = Library(invocation.paths).installed()
    damaged = False
    for model in installed:
        try:
            directory = ModelDirectory.open(model.path)
            if directory.manifest is not None:
                check_files(directory.path, directory.manifest, full=False)
        except PackageError as error:
            damaged = True
            fix = f"splashpy pull {model.name} --force"
            yield Check(f"model {model.name}", "fail", error.message, fix)
    if not installed:
        yield Check("models", "ok", "none installed; splashpy pull demo builds one")
    elif not damaged:
        yield Check("models", "ok", f"{len(installed)} installed, sizes are right")


def _servers(invocation: Invocation) -> Iterator[Check]:
    from splashpy.server.registry import running
    from splashpy.server.serving import open_sockets

    servers = running(invocation.paths.state)
    for server in servers:
        yield Check("server", "ok", f"{server.model} at {server.url}")
    if any(server.port == PORT for server in servers):
        return
    try:
        for found in open_sockets("127.0.0.1", PORT):
            found.close()
    except SplashError:
        fix = "splashpy serve --port N listens at another"
        yield Check("port", "warn", f"{PORT} is taken by another program", fix)
    else:
        yield Check("port", "ok", f"{PORT} is free")


def _conversations(invocation: Invocation) -> Iterator[Check]:
    path = invocation.paths.chats
    if not path.exists():
        yield Check("conversations", "ok", "none saved")
        return
    try:
        uri = f"{path.as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        found = str(error)
    if found == "ok":
        yield Check("conversations", "ok", f"{path} is sound")
    else:
        fix = "the chat moves a damaged file aside and starts a new one"
        yield Check("conversations", "fail", f"{path}: {found}", fix)


def _terminal(invocation: Invocation) -> Iterator[Check]:
    output, environment = invocation.output, invocation.environment
    term = environment.get("TERM")
    if not output.err.terminal:
        yield Check("terminal", "ok", "none; the chat needs one")
    elif term == "dumb":
        yield Check("terminal", "warn", "TERM=dumb", "the chat works in lines there")
    else:
        yield Check("terminal", "ok", f"{term or 'unknown'}, {output.columns} columns")


def counts(checks: list[Check]) -> Mapping[State, int]:
    """How many checks there are of every state."""
    states: tuple[State, ...] = ("ok", "warn", "fail")
    return {state: sum(c.state == state for c in checks) for state in states}
