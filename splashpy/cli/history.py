# SPDX-License-Identifier: Apache-2.0
"""``splashpy history``: the saved conversations of the chat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from splashpy.cli.commands import nearest
from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON
from splashpy.cli.page import Page, PageCommand
from splashpy.cli.questions import confirm
from splashpy.errors import UsageError

if TYPE_CHECKING:
    from splashpy.chat.saved import SavedConversation
    from splashpy.chat.store import Store


def history(invocation: Invocation) -> int:
    """List, print, write, read back or delete saved conversations.

    Raises:
        SplashError: no such action, conversation or file.
    """
    action, *words = invocation.given["words"] or ["list"]
    if action == "path":
        place = str(invocation.paths.chats)
        return _told(invocation, {"path": place}, results=[place])
    if action not in _ACTIONS:
        near = nearest(action, [*_ACTIONS, "path"])
        raise UsageError(
            f"there is no history {action}",
            why="actions: " + ", ".join([*_ACTIONS, "path"]),
            fix=[f"splashpy history {name}" for name in near],
        )
    from splashpy.chat.keeper import utc_now
    from splashpy.chat.store import opened

    with opened(invocation.paths.chats, now=utc_now) as store:
        return _ACTIONS[action](invocation, store, words)


def _list(invocation: Invocation, store: Store, words: Sequence[str]) -> int:
    from splashpy.chat.saved import local_time

    found = store.summaries(" ".join(words))
    output = invocation.output
    if output.json:
        output.document("history", {"conversations": [asdict(row) for row in found]})
        return 0
    rows = [
        [row.title, local_time(row.updated_at), str(row.messages), row.model, row.id]
        for row in found
    ]
    heads = ["TITLE", "CHANGED", "MESSAGES", "MODEL", "ID"]
    output.table(heads, rows, wide=invocation.given["wide"])
    if not found:
        output.note("no conversation is saved" + (" that contains this" * bool(words)))
    return 0


def _show(invocation: Invocation, store: Store, words: Sequence[str]) -> int:
    saved = store.read(store.find(_one(words, "show")))
    invocation.output.result(_as_text(invocation, saved).removesuffix("\n"))
    return 0


def _export(invocation: Invocation, store: Store, words: Sequence[str]) -> int:
    from splashpy.chat import exchange

    given = invocation.given
    if not given["all"]:
        saved = store.read(store.find(_one(words, "export")))
        suffix = "json" if invocation.output.json else "md"
        path = Path(given["output"] or exchange.file_name(saved, suffix))
        exchange.write_text(path, _as_text(invocation, saved))
        return _told(invocation, {"written": [str(path)]}, note=f"written: {path}")
    folder = Path(given["output"] or "splashpy-conversations")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    suffix = "json" if invocation.output.json else "md"
    written = []
    for row in store.summaries():
        path = folder / f"{row.id}.{suffix}"
        exchange.write_text(path, _as_text(invocation, store.read(row.id)))
        written.append(str(path))
    note = f"written: {len(written)} files in {folder}"
    return _told(invocation, {"written": written}, note=note)


def _import(invocation: Invocation, store: Store, words: Sequence[str]) -> int:
    from splashpy.chat import exchange
    from splashpy.chat.keeper import new_id, utc_now

    imported = []
    for word in words or [_one(words, "import")]:
        saved = exchange.read_json(Path(word), new_id=lambda: new_id(utc_now()))
        store.write(saved, saved.messages)
        imported.append(saved.id)
    return _told(invocation, {"imported": imported}, results=imported)


def _remove(invocation: Invocation, store: Store, words: Sequence[str]) -> int:
    named = [store.only(word) for word in words or [_one(words, "rm")]]
    names = list(dict.fromkeys(named))
    titles = ", ".join(store.read(name).title or name for name in names)
    if not confirm(invocation, f"Delete {titles}?"):
        return 1
    for name in names:
        store.delete(name)
    return _told(invocation, {"deleted": names}, note=f"deleted: {titles}")


def _told(
    invocation: Invocation,
    fields: dict[str, Any],
    *,
    results: Sequence[str] = (),
    note: str = "",
) -> int:
    """Say what was done: as a document with --json, else as lines or a note."""
    output = invocation.output
    if output.json:
        output.document("history", fields)
        return 0
    for result in results:
        output.result(result)
    if note:
        output.note(note)
    return 0


def _as_text(invocation: Invocation, saved: SavedConversation) -> str:
    from splashpy.chat import exchange

    if invocation.output.json:
        return exchange.to_json(saved)
    show = invocation.given["reasoning"] == "show"
    return exchange.to_markdown(saved, reasoning=show)


def _one(words: Sequence[str], action: str) -> str:
    if len(words) != 1:
        raise UsageError(
            f"history {action} needs one ID, or a text to find it by",
            fix=["splashpy history list"],
        )
    return words[0]


_ACTIONS: dict[str, Any] = {
    "list": _list,
    "show": _show,
    "export": _export,
    "import": _import,
    "rm": _remove,
}

HISTORY = PageCommand(
    "history",
    page=Page(
        usage="[list|show|export|import|rm|path] [WORDS...]",
        summary="List, print, export, read back or delete saved conversations.",
        examples=(
            ("splashpy history list quicksort", "those that contain a word"),
            ("splashpy history show 01J", "one, by the beginning of its ID"),
            ("splashpy history export 01J --json -o talk.json", "its whole tree"),
            ("splashpy history export --all -o talks", "one file for each"),
        ),
        notes=(
            "An ID may be shortened, or be a text the conversation contains.",
            "show and export write Markdown, with --json the whole tree as JSON.",
            "import reads such JSON files back; path prints where the database is.",
        ),
        defaults={"reasoning": "hide"},
        helps={
            "reasoning": "what the model thought, with show",
            "output": "where export writes; a directory with --all",
            "all": "export every conversation",
        },
    ),
    arguments=(click.Argument(["words"], nargs=-1, metavar="[ACTION] [WORDS...]"),),
    options=("reasoning", "output", "all", "wide", *COMMON),
    run=history,
)
