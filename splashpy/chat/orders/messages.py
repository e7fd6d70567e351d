# SPDX-License-Identifier: Apache-2.0
"""Orders about messages: copy, edit, ask again, branch, switch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from splashpy.chat.clipboard import write_file
from splashpy.chat.entries import Entry, Message, Notice, Reply, UserMessage
from splashpy.chat.parameters import changed
from splashpy.chat.screens.picker import PickerScreen, Row
from splashpy.errors import UsageError
from splashpy.fences import code_blocks

if TYPE_CHECKING:
    from splashpy.chat.screens.chat import ChatScreen

_SHOWN = 600  # characters of a prompt below the list
# Without what closes a link in Markdown or a sentence.
_LINK = re.compile(r"(?:https?://|mailto:)[^\s<>()\[\]\"'`]+")

_M = TypeVar("_M", Message, UserMessage, Reply)


def copy(screen: ChatScreen, argument: str) -> None:
    """Copy an answer, its code, the Nth message, or the conversation.

    ``raw`` copies all that the model wrote, ``file`` writes the answer to a file.
    """
    match argument or "last":
        case "last":
            screen.app.copy_to_clipboard(_last_answer(screen).text)
        case "code":
            copy_code(screen, "")
        case "chat":
            parts = [f"{_speaker(m)}:\n\n{m.text}" for m in _messages(screen) if m.text]
            screen.app.copy_to_clipboard("\n\n".join(parts))
        case "raw":
            answer = _last_answer(screen)
            screen.app.copy_to_clipboard(
                answer.reasoning + answer.text + answer.tool_text
            )
        case "file":
            screen.say(f"written: {write_file(_last_answer(screen).text)}")
        case number:
            screen.app.copy_to_clipboard(_numbered(_messages(screen), number).text)


def copy_code(screen: ChatScreen, argument: str) -> None:
    """Copy the last block of code; each time again, the one before it."""
    blocks = [
        block
        for message in _messages(screen)
        if isinstance(message, Reply)
        for block in code_blocks(message.text)
    ]
    if not blocks:
        raise UsageError("there is no code to copy")
    _copy_next(screen, blocks[::-1])


def copy_message(screen: ChatScreen, argument: str) -> None:
    """Copy the chosen message."""
    screen.app.copy_to_clipboard(_chosen(screen).text)


def copy_block(screen: ChatScreen, argument: str) -> None:
    """Copy the code of the chosen message; each time again, the next block."""
    blocks = code_blocks(_chosen(screen).text)
    if not blocks:
        raise UsageError("this message holds no code")
    _copy_next(screen, blocks)


def edit(screen: ChatScreen, argument: str) -> None:
    """Put a message that was sent back into the editor."""
    messages = [m for m in _messages(screen) if isinstance(m, UserMessage)]
    if argument:
        message = _numbered(messages, argument)
    elif messages:
        message = messages[-1]
    else:
        raise UsageError("nothing was sent yet")
    screen.begin_edit(message)


def edit_chosen(screen: ChatScreen, argument: str) -> None:
    """Put the chosen message into the editor, or the one the answer is for."""
    chosen = _chosen(screen)
    message = chosen.parent if isinstance(chosen, Reply) else chosen
    if isinstance(message, UserMessage):
        screen.begin_edit(message)


def retry(screen: ChatScreen, argument: str) -> None:
    """Ask again for the last answer; parameters that are named hold this once."""
    session = screen.session
    kept, once = session.settings, session.settings
    for word in argument.split():
        name, _, value = word.partition("=")
        once = changed(once, name, value, session.engine.ready)
    session.settings = once
    try:
        screen.retry(None)
    finally:
        session.settings = kept


def resume(screen: ChatScreen, argument: str) -> None:
    """Write on where the last answer broke off."""
    if not screen.conversation.resume():
        reason = screen.session.hindrance or "there is no answer that broke off"
        raise UsageError(reason)
    screen.transcript.action_follow()
    screen.leave_conversation()


def prompts(screen: ChatScreen, argument: str) -> None:
    """Search earlier prompts; the chosen one comes into the editor."""

    def rows(query: str) -> list[Row]:
        found = screen.prompt.earlier.found(query)
        return [
            Row(text, text.split("\n", 1)[0], detail=text[:_SHOWN]) for text in found
        ]

    def chosen(text: str | None) -> None:
        if text is not None:
            screen.prompt.take()  # what stood there is found here too
            screen.prompt.put(text)

    empty = "no earlier prompt is like this"
    screen.app.push_screen(
        PickerScreen("earlier prompts", rows, empty=empty, query=argument), chosen
    )


def open_link(screen: ChatScreen, argument: str) -> None:
    """Show the first link of the chosen message; a second time, open it."""
    found = _LINK.search(_chosen(screen).text)
    if found is None:
        raise UsageError("this message holds no link")
    link = found.group().rstrip(".,;:")
    if screen.shown_link == link:
        screen.app.open_url(link)
    else:
        screen.shown_link = link
        screen.say(f"{link}\npress again to open it")


def retry_chosen(screen: ChatScreen, argument: str) -> None:
    """Ask again for the chosen answer."""
    chosen = _chosen(screen)
    if not isinstance(chosen, Reply):
        raise UsageError("choose an answer to ask for it again")
    screen.retry(chosen)


def branch(screen: ChatScreen, argument: str) -> None:
    """Go on from an earlier answer."""
    replies = [m for m in _messages(screen) if isinstance(m, Reply)]
    if argument:
        reply: Message = _numbered(replies, argument)
    else:
        reply = screen.transcript.chosen or _last_answer(screen)
    if not isinstance(reply, Reply):
        raise UsageError("choose an answer to go on from it")
    if not screen.session.branch(reply):
        raise UsageError(screen.session.hindrance)
    screen.say("what followed is kept; write to go on from here")
    screen.leave_conversation()


def switch(screen: ChatScreen, argument: str) -> None:
    """Show the version before or after the chosen message."""
    chosen = _chosen(screen)
    siblings = screen.session.tree.siblings(chosen)
    if not screen.session.switch(chosen, int(argument)):
        busy = screen.session.reply is not None
        raise UsageError(
            "wait until the answer has ended" if busy else "there is no other version"
        )
    shown = next(m for m in screen.session.tree.path() if m in siblings)
    screen.sync()
    screen.transcript.select(shown)


def _messages(screen: ChatScreen) -> list[Message]:
    entries: list[Entry] = screen.session.entries
    return [entry for entry in entries if not isinstance(entry, Notice)]


def _last_answer(screen: ChatScreen) -> Reply:
    replies = [m for m in _messages(screen) if isinstance(m, Reply) and m.text]
    if not replies:
        raise UsageError("there is no answer yet")
    return replies[-1]


def _chosen(screen: ChatScreen) -> Message:
    chosen = screen.transcript.chosen
    if chosen is None:
        raise UsageError("choose a message first: alt+up, or shift+tab and up")
    return chosen


def named_message(screen: ChatScreen, number: str) -> Message:
    """The message of a number, else the chosen one, else the last answer.

    Raises:
        UsageError: there is none.
    """
    if number:
        return _numbered(_messages(screen), number)
    return screen.transcript.chosen or _last_answer(screen)


def _numbered(messages: Sequence[_M], number: str) -> _M:
    if not number.isdecimal() or not 1 <= int(number) <= len(messages):
        raise UsageError(f"there is no {number!r}; count from 1 to {len(messages)}")
    return messages[int(number) - 1]


def _copy_next(screen: ChatScreen, blocks: list[str]) -> None:
    """Copy the block after the one copied last, if it is one of these."""
    last = screen.app.clipboard
    index = blocks.index(last) + 1 if last in blocks else 0
    screen.app.copy_to_clipboard(blocks[index % len(blocks)])


def _speaker(message: Message) -> str:
    return "You" if isinstance(message, UserMessage) else message.name
