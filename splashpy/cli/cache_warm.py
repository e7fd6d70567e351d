# SPDX-License-Identifier: Apache-2.0
"""``splashpy cache warm``: read a prompt now, so that later ones need not."""

from __future__ import annotations

import json
from typing import Any

import click

from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON, ENGINE
from splashpy.cli.page import Page, PageCommand
from splashpy.cli.prompt import read_text
from splashpy.errors import UsageError


def warm(invocation: Invocation) -> int:
    """Read a system prompt or a recorded request, and keep it on disk.

    Raises:
        SplashError: the file cannot be read, or the model not be loaded.
        KeyboardInterrupt: stopped; what was read until then is kept.
    """
    from splashpy.cli import exchange
    from splashpy.cli.signals import Interrupts
    from splashpy.cli.writing import connected, load_command
    from splashpy.protocol import Done, Event, Generate, LoadProgress, Prefill

    given = invocation.given
    if given["no_prefix_cache"] or given["cache_disk"] == 0:
        raise UsageError(
            "nothing can be kept",
            why="--no-prefix-cache and --cache-disk 0 switch the cache off",
        )
    request = Generate(id="warm", prefill_only=True, **read_request(given["request"]))
    progress = invocation.progress()

    def show(event: Event) -> None:
        if isinstance(event, LoadProgress):
            progress.update(event)

    ended: Done | None = None
    with Interrupts(invocation.output.err) as interrupts:
        load = load_command(invocation, given["model"], interrupts)
        with connected(invocation) as client:
            try:
                exchange.load(client, load, show, interrupts)
                for event in exchange.follow(client, request, interrupts):
                    if isinstance(event, Prefill):
                        progress.prompt(event.processed, event.total)
                    elif isinstance(event, Done):
                        ended = event
            finally:
                progress.close()
    assert ended is not None  # follow ends with it or raises
    if ended.reason == "cancelled":
        raise KeyboardInterrupt(interrupts.exit_code or 130)
    return _report(invocation, load.name, ended)


def read_request(path: str) -> dict[str, Any]:
    """What a file asks: a system prompt, messages, or a request with messages.

    Raises:
        InputFileError: the file is missing, unreadable or not UTF-8 text.
        UsageError: it is JSON of another form, or empty.
    """
    text = read_text(path)
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if data is None or isinstance(data, str | int | float):
        if not text.strip():
            raise UsageError(f"{path} is empty")
        # What a user says then is not known; a system prompt ends before it.
        user = {"role": "user", "content": ""}
        return {"messages": ({"role": "system", "content": text}, user)}
    asked = data if isinstance(data, dict) else {"messages": data}
    messages, tools = asked.get("messages"), asked.get("tools") or []
    rows = messages if isinstance(messages, list) else []
    if not rows or not all(isinstance(row, dict) and "role" in row for row in rows):
        raise UsageError(
            f"{path} holds no messages",
            why="expected text, an array of messages, or a request with messages",
        )
    return {"messages": tuple(rows), "tools": tuple(tools)}


def _report(invocation: Invocation, model: str, ended: Any) -> int:
    usage, output = ended.usage, invocation.output
    fields = {
        "model": model,
        "prompt_tokens": usage.prompt,
        "cached_tokens": usage.cached,
        "seconds": ended.timing.prefill_ms / 1e3,
    }
    if output.json:
        output.document("cache-warm", fields)
    else:
        read = usage.prompt - usage.cached
        output.note(
            f"{model}: {usage.prompt:,} tokens are kept, {read:,} of them read now "
            f"in {fields['seconds']:.1f} s"
        )
    return 0


WARM = PageCommand(
    "cache warm",
    page=Page(
        usage="FILE [MODEL]",
        summary="Read a prompt ahead of time and keep it on disk.",
        examples=(
            ("splashpy cache warm system.txt demo", "a system prompt"),
            ("splashpy cache warm request.json", "an OpenAI request with its tools"),
        ),
        notes=(
            "FILE is text (a system prompt), an array of messages, or a request.",
            "Prompts of fewer than 256 tokens are read as fast as they are restored.",
            "Options that change the rows, such as --kv, must be the same later.",
        ),
    ),
    arguments=(
        click.Argument(["request"], metavar="FILE"),
        click.Argument(["model"], metavar="[MODEL]", required=False),
    ),
    options=(*ENGINE, *COMMON),
    run=warm,
)
