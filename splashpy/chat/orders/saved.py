# SPDX-License-Identifier: Apache-2.0
"""Orders about saved conversations: list, open, rename, delete, export, import."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from splashpy.chat import exchange
from splashpy.chat.files import path_of
from splashpy.chat.keeper import new_id, utc_now
from splashpy.chat.saved import SavedConversation, local_time
from splashpy.chat.screens.ask import AskScreen
from splashpy.chat.screens.picker import Deed, PickerScreen, Row
from splashpy.chat.store import Summary
from splashpy.errors import SplashError, UsageError

if TYPE_CHECKING:
    from splashpy.chat.screens.chat import ChatScreen


def chats(screen: ChatScreen, argument: str) -> None:
    """List the saved conversations; the chosen one is opened."""
    archive = screen.conversation.archive
    screen.conversation.keep()
    archive.flush()

    def rows(query: str) -> list[Row]:
        try:
            found = archive.ask(lambda store: store.summaries(query))
        except SplashError as error:
            screen.refuse(error)
            return []
        return [_row(summary, archive.conversation) for summary in found]

    def chosen(name: str | None) -> None:
        if name is not None and name != archive.conversation:
            screen.attempt(lambda: _open(screen, name))

    screen.app.push_screen(
        PickerScreen(
            "conversations",
            rows,
            empty="nothing is saved that contains this",
            deeds=_deeds(screen),
            query=argument,
        ),
        chosen,
    )


def _row(summary: Summary, present: str | None) -> Row:
    marks = ("▸ " if summary.id == present else "") + ("★ " if summary.pinned else "")
    when = local_time(summary.updated_at)
    return Row(
        summary.id,
        marks + (summary.title or "(no text)"),
        f"{summary.messages} messages  {when}",
        f"splashpy chat -r {summary.id}   {summary.model}",
    )


def _deeds(screen: ChatScreen) -> dict[str, Deed]:
    archive = screen.conversation.archive

    def pin(name: str) -> None:
        found = archive.ask(lambda store: store.summaries())
        pinned = next((s.pinned for s in found if s.id == name), False)
        archive.do(lambda store: store.pin(name, pinned=not pinned))
        archive.flush()

    def delete(name: str) -> None:
        if name == archive.conversation:
            screen.conversation.begin_anew()
            screen.sync()
        archive.do(lambda store: store.delete(name))
        archive.flush()

    def retitle(name: str) -> None:
        screen.app.pop_screen()
        # From the conversation's own loop: the list's ends with the list.
        screen.call_later(_ask_title, screen, name)

    def write(name: str) -> None:
        saved = archive.ask(lambda store: store.read(name))
        _export(screen, saved, "md", "")

    def deed(word: str, do: Callable[[str], None], *, twice: bool = False) -> Deed:
        """It may fail: another chat may have deleted what the list still shows."""
        return Deed(word, lambda name: screen.attempt(lambda: do(name)), twice)

    return {
        "ctrl+t": deed("title", retitle),
        "ctrl+o": deed("pin", pin),
        "ctrl+e": deed("export", write),
        "ctrl+x": deed("delete", delete, twice=True),
    }


def _ask_title(screen: ChatScreen, name: str) -> None:
    archive = screen.conversation.archive

    def named(title: str | None) -> None:
        if title:
            archive.do(lambda store: store.rename(name, title))
        chats(screen, "")

    screen.app.push_screen(AskScreen("new title"), named)


def _open(screen: ChatScreen, name: str) -> None:
    screen.writing.keep()  # for when this conversation is opened again
    draft = screen.conversation.open(name)
    screen.writing.clear()
    screen.writing.take_up(draft)
    screen.transcript.action_follow()
    screen.leave_conversation()


def rename(screen: ChatScreen, argument: str) -> None:
    """Give the conversation another title."""
    archive, name = screen.conversation.archive, _present(screen)
    if not argument:
        raise UsageError("/rename needs a title")
    archive.do(lambda store: store.rename(name, argument))
    screen.say(f"renamed: {argument}")


def delete(screen: ChatScreen, argument: str) -> None:
    """Delete the conversation, once its name is repeated."""
    archive, name = screen.conversation.archive, _present(screen)
    if argument != "now":
        raise UsageError(
            "this deletes the conversation and all its branches",
            fix=["/delete now", "/export json keeps a copy"],
        )
    screen.conversation.begin_anew()
    archive.do(lambda store: store.delete(name))
    screen.say("deleted")
    screen.sync()


def export(screen: ChatScreen, argument: str) -> None:
    """Write the conversation to a file, as Markdown or JSON."""
    form, _, path = argument.partition(" ")
    if form not in ("", "md", "json"):
        form, path = ("json" if argument.endswith(".json") else "md"), argument
    archive, name = screen.conversation.archive, _present(screen)
    screen.conversation.keep()
    archive.flush()
    saved = archive.ask(lambda store: store.read(name))
    _export(screen, saved, form or "md", path.strip())


def _export(screen: ChatScreen, saved: SavedConversation, form: str, path: str) -> None:
    text = (
        exchange.to_json(saved)
        if form == "json"
        else exchange.to_markdown(saved, reasoning=True)
    )
    target = path_of(path or exchange.file_name(saved, form))
    exchange.write_text(target, text)
    screen.say(f"written: {target}")


def read(screen: ChatScreen, argument: str) -> None:
    """Open an exported conversation, as a copy."""
    if not argument:
        raise UsageError("/import needs the path of an exported JSON file")
    archive = screen.conversation.archive
    path = path_of(argument)
    saved = exchange.read_json(path, new_id=lambda: new_id(utc_now()))
    archive.do(lambda store: store.write(saved, saved.messages))
    archive.flush()
    _open(screen, saved.id)
    screen.say(f"imported: {saved.title}")


def _present(screen: ChatScreen) -> str:
    name = screen.conversation.archive.conversation
    if name is None:
        raise UsageError("nothing was said yet")
    return name
