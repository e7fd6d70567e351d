# SPDX-License-Identifier: Apache-2.0
"""``splashpy serve``: an endpoint for editors, agents and SDKs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON, ENGINE, SAMPLING
from splashpy.cli.page import Page, PageCommand
from splashpy.cli.server_options import PORT
from splashpy.cli.signals import Interrupts
from splashpy.errors import UsageError

if TYPE_CHECKING:
    import socket

    from splashpy.client.client import EngineClient
    from splashpy.protocol import Load, Ready
    from splashpy.server.registry import Announcement, RunningServer
    from splashpy.server.settings import ServerSettings

_GRACE_SECONDS = 14.0  # 10 for requests under way, the rest for the engine's end
_POLL_SECONDS = 0.1  # how soon a Ctrl-C is noticed
_HASHED = 1 << 20  # bytes of each small file that tell one package from another
_SERVED_SAMPLING = tuple(
    name for name in SAMPLING if name not in ("logit_bias", "stop", "max_tokens")
)


def serve(invocation: Invocation) -> int:
    """Answer requests until somebody stops it; returns the exit code.

    Raises:
        SplashError: usage, port, model or engine errors.
    """
    from splashpy.cli.writing import load_command
    from splashpy.server.serving import open_sockets

    given = invocation.given
    host = given["host"] or "127.0.0.1"
    _check_access(invocation, host)
    port = PORT if given["port"] is None else given["port"]
    sockets = open_sockets(host, port)
    try:
        err = invocation.output.err
        with Interrupts(err, hangup=True, grace=_GRACE_SECONDS) as interrupts:
            load = load_command(invocation, given["model"], interrupts)
            interrupts.check()
            settings = _settings(invocation, load, host)
            return _run(invocation, load, settings, sockets, interrupts)
    finally:
        for item in sockets:
            item.close()


def _check_access(invocation: Invocation, host: str) -> None:
    """Refuse to let other machines in without a key, unless that is wanted.

    Raises:
        UsageError: no key, or one no header can carry.
    """
    from splashpy.server.access import is_loopback, usable_key

    key = invocation.given["api_key"]
    if key is not None and not usable_key(key):
        raise UsageError(
            "the key cannot be sent in a header",
            why="a key is 1 to 256 visible ASCII characters",
        )
    if not key and not invocation.given["no_auth"] and not is_loopback(host):
        raise UsageError(
            f"--host {host} lets other machines in, and there is no key",
            fix=[
                "SPLASHPY_API_KEY=KEY splashpy serve …",
                "--no-auth, if that is meant",
            ],
        )


def _settings(invocation: Invocation, load: Load, host: str) -> ServerSettings:
    from splashpy.server.settings import MEBIBYTE, ServerSettings

    given = invocation.given
    family, bits = _architecture(Path(load.model))
    return ServerSettings(
        model=load.name or load.model,
        package_hash=_package_hash(Path(load.model)),
        size_bytes=_size(Path(load.model)),
        family=family,
        bits=bits,
        names=given["served_model_name"],
        strict_model=given["strict_model"],
        key=given["api_key"] or "",
        hosts=given["allowed_host"],
        origins=given["allowed_origin"],
        bound_to=host,
        sampling=invocation.sampling(),
        effort=given["default_effort"],
        efforts=given["effort_map"],
        max_output=given["max_output_tokens"],
        max_reasoning=given["max_reasoning_tokens"],
        max_body_bytes=given["max_request_size"] or 64 * MEBIBYTE,
        max_queue=16 if given["max_queue"] is None else given["max_queue"],
        request_seconds=given["request_timeout"] or 3600.0,
        keepalive_seconds=given["keepalive"] or 5.0,
        idle_seconds=60 * given["unload_after"] if given["unload_after"] else None,
        log_requests=given["request_log"],
        ollama=given["ollama"],
        lmstudio=given["lmstudio"],
    )


def _run(
    invocation: Invocation,
    load: Load,
    settings: ServerSettings,
    sockets: list[socket.socket],
    interrupts: Interrupts,
) -> int:
    import asyncio

    program = _Program(invocation, load, settings, sockets, interrupts)
    asyncio.run(program.run())
    return interrupts.exit_code


class _Program:
    """The server, its engine, and what a person sees of them."""

    def __init__(
        self,
        invocation: Invocation,
        load: Load,
        settings: ServerSettings,
        sockets: list[socket.socket],
        interrupts: Interrupts,
    ):
        self._invocation = invocation
        self._load = load
        self._settings = settings
        self._sockets = sockets
        self._interrupts = interrupts

    async def run(self) -> None:
        """Listen, load, answer, end.

        Raises:
            SplashError: the model cannot be loaded.
        """
        import asyncio

        from splashpy.server.endpoint import Endpoint
        from splashpy.server.engine import Engine
        from splashpy.server.serving import HttpServer

        output = self._invocation.output
        idle = self._settings.idle_seconds
        connect = _connect(self._invocation)
        engine = Engine(
            connect, self._load, output.warn, note=output.note, idle_seconds=idle
        )
        log = output.note if self._settings.log_requests else None
        endpoint = Endpoint(self._settings, engine, _now, log=log)
        server = HttpServer(endpoint, self._sockets, self._tell_bug)
        self._interrupts.before_exit(engine.kill)
        # Before it loads: nobody else shall load the same model meanwhile.
        running, announced = self._announce(server.port)
        engine.start()
        answering = asyncio.ensure_future(server.run())
        told = False
        progress = self._invocation.progress()
        try:
            while not answering.done():
                await asyncio.sleep(_POLL_SECONDS)
                if self._interrupts.requested:
                    server.stop()
                if engine.failed.done():
                    engine.failed.result()
                if not told and engine.state == "loading":
                    progress.update(engine.vitals.progress)
                if not told and engine.facts is not None:
                    progress.close()
                    self._tell_ready(engine.facts, running)
                    told = True
        finally:
            progress.close()
            server.stop()
            await answering
            await engine.close()
            announced.withdraw()

    def _announce(self, port: int) -> tuple[RunningServer, Announcement]:
        """Tell other commands where it will answer."""
        from splashpy.server.registry import RunningServer, announce
        from splashpy.version import __version__

        running = RunningServer(
            port=port,
            host=self._settings.bound_to,
            pid=os.getpid(),
            model=self._settings.model,
            version=__version__,
            started=_now(),
        )
        return running, announce(self._invocation.paths.state, running)

    def _tell_ready(self, facts: Ready, server: RunningServer) -> None:
        """Tell a person where it answers."""
        from splashpy.cli.stats import memory_line
        from splashpy.units import format_tokens

        output, settings = self._invocation.output, self._settings
        if output.json:
            fields = {
                "url": f"{server.url}/v1",
                "pid": server.pid,
                "model": settings.model,
                "revision": self._load.revision,
                "context": facts.context_max,
            }
            output.out.write(_one_line("serve", fields))
            return
        drafts = f"draft {facts.draft.state}"
        if facts.draft.state == "active":
            drafts += f", block {facts.block_size}"
        output.note(f"model {settings.model}: {drafts}")
        output.note(f"context {format_tokens(facts.context_max)}")
        if plan := memory_line(facts):
            output.note(plan)
        output.note(f"Ready {server.url}/v1")
        output.note("stop with Ctrl-C")

    def _tell_bug(self, error: Exception) -> None:
        from splashpy.cli.failure import explain, report

        report(explain(error, self._invocation.paths.log), self._invocation.output)


def _one_line(command: str, fields: dict[str, Any]) -> str:
    from splashpy.cli.output import document

    return document(command, fields, one_line=True)


def _connect(invocation: Invocation) -> Callable[[], EngineClient]:
    replay = invocation.given["replay"]
    if replay:
        from splashpy.cli.writing import replay_speed
        from splashpy.client.replay import ReplayClient

        speed = replay_speed(invocation.given["speed"])
        return lambda: ReplayClient(Path(replay), speed=speed)
    from splashpy.client.child import ChildClient

    log = invocation.paths.log / "engine.log"
    return lambda: ChildClient.spawn(log)


def _now() -> float:
    from datetime import UTC, datetime

    return datetime.now(UTC).timestamp()


def _package_hash(directory: Path) -> str:
    """12 hex digits that change when the files of a model do.

    Names, sizes and the beginnings of small files; weights by size only.
    """
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            size = path.stat().st_size
            digest.update(f"{path.relative_to(directory)} {size}\n".encode())
            if size <= _HASHED:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _architecture(directory: Path) -> tuple[str, int]:
    """Family and bits of the weights; empty and 0 where nothing is said of them."""
    from splashpy.errors import SplashError
    from splashpy.package.model_directory import ModelDirectory

    try:
        model = ModelDirectory.open(directory)
    except SplashError:
        return "", 0  # the engine, which reads it too, will say why
    quantized = model.config.get("quantization")
    bits = quantized.get("bits") if isinstance(quantized, dict) else None
    return model.model_type, bits if isinstance(bits, int) else 0


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


SERVE = PageCommand(
    "serve",
    page=Page(
        usage="[MODEL]",
        summary="Answer editors, agents and SDKs over HTTP.",
        examples=(
            ("splashpy serve", "OpenAI's API at http://127.0.0.1:8000/v1"),
            ("splashpy serve demo --port 8080", "at another port"),
            (
                "curl http://127.0.0.1:8000/v1/models",
                "what is served, from another terminal",
            ),
        ),
        notes=(
            "The port answers at once; requests wait while the model is loaded.",
            "Sampling options are defaults for requests that set nothing.",
            "Ctrl-C: nothing that waits is begun, what runs gets 10 s; twice: now.",
        ),
    ),
    arguments=(click.Argument(["model"], required=False),),
    options=(
        "host",
        "port",
        "api_key",
        "no_auth",
        "served_model_name",
        "strict_model",
        "allowed_host",
        "allowed_origin",
        "default_effort",
        "effort_map",
        "max_output_tokens",
        "max_reasoning_tokens",
        "max_concurrent",
        "max_queue",
        "max_request_size",
        "request_timeout",
        "keepalive",
        "unload_after",
        "request_log",
        "ollama",
        "lmstudio",
        "replay",
        "speed",
        *ENGINE,
        *_SERVED_SAMPLING,
        *COMMON,
    ),
    run=serve,
)
