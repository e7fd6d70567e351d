# SPDX-License-Identifier: Apache-2.0
"""``splashpy chat``: talk in the terminal.

======================  =====================  ======================================
standard input          stdout                 what happens
======================  =====================  ======================================
terminal                terminal               the screen; lines with --plain, CI set
                                               or TERM=dumb
text from a pipe        terminal               the text is the first message, keys
                                               come from /dev/tty
empty, or no /dev/tty   terminal               one answer, as ``run``
any                     no terminal            one answer, as ``run``
======================  =====================  ======================================
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from splashpy import blas
from splashpy.cli import prompt
from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON, ENGINE, SAMPLING
from splashpy.cli.page import Page, PageCommand
from splashpy.cli.signals import Interrupts
from splashpy.errors import NotFoundError, TerminalError, UsageError

if TYPE_CHECKING:
    from splashpy.chat.conversation import Machine
    from splashpy.chat.saved import SavedConversation
    from splashpy.chat.settings import ChatSettings
    from splashpy.client.client import EngineClient
    from splashpy.protocol import Load

_LOG_LINES = 200
_DOCTOR_SECONDS = 60.0

Connect = Callable[[], "EngineClient"]
"""Starts an engine; called again when the last one died."""


def chat(invocation: Invocation) -> int:
    """Talk, or answer once where there is no terminal to talk in.

    Raises:
        SplashError: usage, model or engine errors.
        KeyboardInterrupt: stopped before the chat began.
    """
    given = invocation.given
    word, words = prompt.split_model(given["words"])
    piped = prompt.read_input(sys.stdin)
    text = prompt.typed_text(words, given["file"], piped)
    if not invocation.output.out.terminal or not _keyboard(piped):
        return _answer_once(invocation, word, text)
    _check_blas(invocation)
    saved = _resumed(invocation)
    load, server = _chosen(invocation, word or _model_of(saved))
    if load is None:
        return 0
    first, resume = text or None, saved.id if saved else None
    return _talk(invocation, load, server, first, resume)


def _chosen(invocation: Invocation, word: str | None) -> tuple[Load | None, str]:
    """The model, and the address of the server that has it; empty: none has.

    Returns:
        No model when the person does not want another one loaded.

    Raises:
        SplashError: no such model, or options that exclude each other.
    """
    from splashpy.cli.attach import load_beside, served, server_of
    from splashpy.protocol import Load

    url = invocation.given["url"]
    invocation.refuse_pairs((("url", "no_attach", "a server, or an own engine"),))
    if url:
        return Load(model=url), url
    servers = served(invocation)
    if word is None and len(servers) == 1:
        return Load(model=servers[0].model, name=servers[0].model), servers[0].url
    with Interrupts(invocation.output.err) as interrupts:
        load = _load_command(invocation, word, interrupts)
        interrupts.check()
    found = server_of(servers, load)
    if found is not None:
        return load, found.url
    return (load if load_beside(invocation, servers, load) else None), ""


def _resumed(invocation: Invocation) -> SavedConversation | None:
    """The saved conversation to go on with, if one is asked for.

    Raises:
        UsageError: it is asked for and forbidden.
        NotFoundError: there is no such conversation.
    """
    given = invocation.given
    invocation.refuse_pairs(
        (
            ("resume_last", "resumed", "the last one, or the one that is named"),
            ("resume_last", "no_save", "what goes on is saved"),
            ("resumed", "no_save", "what goes on is saved"),
        )
    )
    if not (given["resume_last"] or given["resumed"]):
        return None
    from splashpy.chat.keeper import utc_now
    from splashpy.chat.store import opened

    with opened(invocation.paths.chats, now=utc_now) as store:
        name = store.find(given["resumed"]) if given["resumed"] else store.latest()
        if name is None:
            raise NotFoundError("no conversation is saved yet")
        return store.read(name)


def _model_of(saved: SavedConversation | None) -> str | None:
    """The model that answered last, so that going on needs no name."""
    return (saved.model or None) if saved else None


def _answer_once(invocation: Invocation, word: str | None, text: str) -> int:
    if invocation.given["url"]:
        raise UsageError("--url needs a terminal to talk in")
    if not text:
        raise TerminalError(
            "chat needs a terminal, or a prompt to answer",
            why="stdin or stdout is not a terminal and there are no words",
            fix=['splashpy run demo "Name three primary colours."'],
        )
    from splashpy.cli.writing import write_answer

    system = prompt.read_system(invocation.given["system"])
    return write_answer(invocation, word, prompt.ask(text, system=system))


def _keyboard(piped: str) -> bool:
    """Whether keys can be read; a pipe gives way to /dev/tty once it is read.

    An empty standard input, such as /dev/null, says that nobody will type.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        return True
    if not piped:
        return False
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return False
    os.dup2(terminal, 0)
    os.close(terminal)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    return True


def _check_blas(invocation: Invocation) -> None:
    """Load the BLAS a variable names here, before an engine process dies of it.

    Raises:
        UsageError: it cannot be loaded.
    """
    chosen = invocation.environment.get("SPLASHPY_BLAS")
    if chosen not in ("", "auto", "reference") and not invocation.given["replay"]:
        blas.prepare()


def _load_command(
    invocation: Invocation, word: str | None, interrupts: Interrupts
) -> Load:
    from splashpy.cli.writing import load_command

    return load_command(invocation, word, interrupts)


def _talk(
    invocation: Invocation,
    load: Load,
    server: str,
    first_message: str | None,
    resume: str | None,
) -> int:
    """Start the engine, then import the screen, so that both come up together."""
    engine = _Engine(_starter(invocation, server))
    with engine:
        from splashpy.chat.keeper import Keeper

        settings = _settings(invocation, load, server)
        keeper = None if invocation.given["no_save"] else Keeper(invocation.paths.chats)
        if _plain(invocation):
            from splashpy.chat.line_mode import run_plain

            code = run_plain(
                engine.connect,
                load,
                settings=settings,
                first_message=first_message,
                keeper=keeper,
                resume=resume,
                stdin=sys.stdin,
                stdout=sys.stdout,
                stderr=sys.stderr,
            )
        else:
            from splashpy.chat.app import run_chat

            code = run_chat(
                engine.connect,
                load,
                settings=settings,
                first_message=first_message,
                keeper=keeper,
                resume=resume,
                machine=_machine(invocation),
            )
    if keeper is not None and keeper.conversation:
        invocation.output.note(f"saved: splashpy chat -r {keeper.conversation}")
    return code


class _Engine:
    """The first engine is started at once, later ones when asked for."""

    def __init__(self, start: Connect):
        self._start = start
        self._first: EngineClient | None = self._start()

    def connect(self) -> EngineClient:
        """The engine that was started, once; then a new one for each call."""
        first, self._first = self._first, None
        return self._start() if first is None else first

    def __enter__(self) -> _Engine:
        return self

    def __exit__(self, *_: object) -> None:
        """End the first engine if nobody took it."""
        if self._first is not None:
            self._first.close(now=True)


def _starter(invocation: Invocation, server: str) -> Connect:
    if server:
        from splashpy.client.http import HttpClient

        key = invocation.given["api_key"] or ""
        return lambda: HttpClient(server, key=key)
    replay = invocation.given["replay"]
    if replay:
        from splashpy.cli.writing import replay_speed
        from splashpy.client.replay import ReplayClient

        speed = replay_speed(invocation.given["speed"])
        return lambda: ReplayClient(Path(replay), speed=speed)
    from splashpy.client.child import ChildClient

    log = invocation.paths.log / "engine.log"
    return lambda: ChildClient.spawn(log)


def _plain(invocation: Invocation) -> bool:
    environment = invocation.environment
    lines_only = environment.get("TERM") == "dumb" or environment.get("CI")
    return bool(invocation.given["plain"] or lines_only)


def _settings(invocation: Invocation, load: Load, server: str) -> ChatSettings:
    from splashpy.chat.settings import ChatSettings

    given, config = invocation.given, invocation.config
    return ChatSettings(
        sampling=invocation.sampling(),
        max_tokens=given["max_tokens"],
        system=prompt.read_system(given["system"]),
        title=load.name,
        inline=given["inline"],
        mouse=not given["no_mouse"] and config.get("chat.mouse") is not False,
        theme=given["theme"]
        or config.get("chat.theme")
        or invocation.environment.theme,
        themes=invocation.paths.config / "themes",
        remote=invocation.environment.remote,
        display=invocation.environment.display,
        tmux=bool(invocation.environment.get("TMUX")),
        server=server,
        keys=_keys(invocation),
        editor=invocation.environment.editor,
        pager=invocation.environment.get("PAGER") or "less",
        emoji=config.get("chat.emoji") != "text",
        motion=config.get("chat.motion") is not False
        and invocation.environment.get("TEXTUAL_ANIMATIONS") != "none",
        encoding=sys.stdout.encoding,
    )


def _machine(invocation: Invocation) -> Machine:
    from splashpy.chat.conversation import Machine
    from splashpy.cli.offers import free_memory, offers

    log = invocation.paths.log / "engine.log"
    return Machine(
        lambda: offers(invocation.paths),
        free_memory,
        log=lambda: _end_of(log),
        doctor=_doctor,
        explain=_explain,
    )


def _end_of(log: Path) -> str:
    """The path of a log, and its last lines."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return f"{log}\n{error.strerror}"
    return "\n".join([str(log), "", *text.splitlines()[-_LOG_LINES:]])


def _doctor() -> str:
    """What ``splashpy doctor`` says; in a process of its own, since it needs MLX."""
    import subprocess

    try:
        done = subprocess.run(
            [sys.executable, "-m", "splashpy", "doctor"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DOCTOR_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout + done.stderr


def _explain(topic: str) -> str:
    """What ``splashpy help`` says about an error code; empty where it knows none."""
    from splashpy.cli.catalogue import CATALOGUE

    row = CATALOGUE.get(topic.upper())
    if row is None:
        return ""
    return "\n".join([f"{topic.upper()}: {row.when}", *row.fixes])


def _keys(invocation: Invocation) -> dict[str, str]:
    """What a person rebound; a key that two actions share is pointed out."""
    from splashpy.chat.keys import ENTER_BEGINS_LINES, clashes, rebound

    config = invocation.config
    lines = config.get("chat.enter") == "newline"
    keys = {**(ENTER_BEGINS_LINES if lines else {}), **config.table("keys")}
    for key, first, second in clashes(rebound(keys)):
        invocation.output.warn(f"[keys]: {key} is both {first} and {second}")
    return keys


CHAT = PageCommand(
    "chat",
    page=Page(
        usage="[MODEL] [PROMPT...]",
        summary="Talk with a model in the terminal.",
        examples=(
            ("splashpy chat", "with the default model; see splashpy help models"),
            ('splashpy chat demo "Explain speculative decoding."', "ask at once"),
            ("splashpy chat --url localhost:8080", "with the model of a server"),
        ),
        notes=(
            "MODEL is a short name, OWNER/REPO[@REVISION] or a directory such as ./x.",
            "A first word with a space in it is a prompt, not a model.",
            "Without a terminal one answer goes to stdout, as with splashpy run.",
        ),
        defaults={"api_key": "none"},
        helps={"api_key": "key of the server"},
    ),
    arguments=(click.Argument(["words"], nargs=-1, metavar="[MODEL] [PROMPT...]"),),
    options=(
        "system",
        "file",
        "resume_last",
        "resumed",
        "no_save",
        "url",
        "no_attach",
        "api_key",
        "plain",
        "inline",
        "theme",
        "no_mouse",
        "replay",
        "speed",
        *ENGINE,
        *SAMPLING,
        *(name for name in COMMON if name != "json"),
    ),
    run=chat,
)
