# SPDX-License-Identifier: Apache-2.0
"""The one table of keys: what each does, where, and under which name it is rebound.

``config.toml`` may give an action other keys in its table ``[keys]``. The bindings of
the screen, the help page and the reference are made from this table. It imports
nothing, so the command line can read it too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

Scope = Literal["anywhere", "prompt", "conversation"]
"""Where a key means this: on the whole screen, or where the cursor is."""


class Action(NamedTuple):
    """One row of the table.

    Attributes:
        id: name in ``[keys]``.
        keys: as Textual writes them, separated by commas.
        call: Textual action.
        scope: where it holds.
        group: heading on the help page.
        help: one line.
    """

    id: str
    keys: str
    call: str
    scope: Scope
    group: str
    help: str


ACTIONS = (
    Action(
        "send",
        "enter,ctrl+enter",
        "send",
        "prompt",
        "Writing",
        "send; while an answer runs, let it wait",
    ),
    Action(
        "newline",
        "ctrl+j,shift+enter,alt+enter",
        "newline",
        "prompt",
        "Writing",
        "new line; also \\ then enter",
    ),
    Action("undo", "ctrl+underscore,super+z", "undo", "prompt", "Writing", "undo"),
    Action(
        "delete_or_quit",
        "ctrl+d",
        "delete_or_quit",
        "prompt",
        "Leaving",
        "delete right; in an empty prompt, twice to quit",
    ),
    Action(
        "stop",
        "escape",
        "step_back",
        "anywhere",
        "Answers",
        "leave editing, or stop; twice: edit what was sent",
    ),
    Action(
        "interrupt",
        "ctrl+c",
        "interrupt",
        "anywhere",
        "Leaving",
        "copy, else stop, else clear, else twice to quit",
    ),
    Action(
        "copy_answer",
        "ctrl+y",
        "screen.order('copy')",
        "anywhere",
        "Answers",
        "copy the last answer as Markdown",
    ),
    Action(
        "copy_code",
        "alt+y",
        "screen.order('copy_code')",
        "anywhere",
        "Answers",
        "copy the last code block; again: the one before",
    ),
    Action(
        "retry",
        "alt+r",
        "screen.order('retry')",
        "anywhere",
        "Answers",
        "ask again",
    ),
    Action(
        "new",
        "ctrl+n",
        "screen.order('new')",
        "anywhere",
        "Answers",
        "new conversation",
    ),
    Action(
        "chats",
        "ctrl+s",
        "screen.order('chats')",
        "anywhere",
        "Panels",
        "saved conversations",
    ),
    Action(
        "model",
        "ctrl+l",
        "screen.order('model')",
        "anywhere",
        "Panels",
        "models, and what fits",
    ),
    Action(
        "parameters",
        "f2",
        "screen.order('parameters')",
        "anywhere",
        "Panels",
        "parameters and system prompt",
    ),
    Action(
        "effort",
        "ctrl+t",
        "screen.order('effort', 'next')",
        "anywhere",
        "Panels",
        "the next reasoning effort",
    ),
    Action(
        "editor",
        "ctrl+g",
        "screen.order('editor')",
        "anywhere",
        "Writing",
        "write in $VISUAL or $EDITOR",
    ),
    Action(
        "speed",
        "f3",
        "screen.order('speed')",
        "anywhere",
        "Panels",
        "speed panel: acceptance, times, memory",
    ),
    Action(
        "colour",
        "f4",
        "screen.order('colour')",
        "anywhere",
        "Panels",
        "colour tokens by where they came from",
    ),
    Action(
        "restart",
        "ctrl+r",
        "restart_or_search",
        "anywhere",
        "Writing",
        "search earlier prompts; restart a dead engine",
    ),
    Action(
        "panel",
        "ctrl+b",
        "screen.order('speed')",
        "anywhere",
        "Panels",
        "show or hide the panel at the side",
    ),
    Action(
        "error",
        "f8",
        "screen.order('error')",
        "anywhere",
        "Panels",
        "the last error in full",
    ),
    Action("help", "f1", "screen.order('help')", "anywhere", "Leaving", "all keys"),
    Action("page_up", "pageup", "page(-1)", "anywhere", "Reading", "a page up"),
    Action("page_down", "pagedown", "page(1)", "anywhere", "Reading", "a page down"),
    Action("top", "ctrl+home", "top", "anywhere", "Reading", "to the beginning"),
    Action("end", "ctrl+end", "end", "anywhere", "Reading", "to the end, and follow"),
    Action(
        "previous",
        "alt+up",
        "choose(-1)",
        "anywhere",
        "Reading",
        "choose the message before",
    ),
    Action(
        "next", "alt+down", "choose(1)", "anywhere", "Reading", "choose the next one"
    ),
    Action(
        "suspend",
        "ctrl+z",
        "app.suspend_process",
        "anywhere",
        "Leaving",
        "to the shell; fg comes back",
    ),
    Action("quit", "ctrl+q", "app.quit", "anywhere", "Leaving", "quit now"),
    Action("choose_previous", "up,k", "choose(-1)", "conversation", "Chosen", "before"),
    Action("choose_next", "down,j", "choose(1)", "conversation", "Chosen", "next"),
    Action(
        "copy_message",
        "c",
        "screen.order('copy_message')",
        "conversation",
        "Chosen",
        "copy the message",
    ),
    Action(
        "copy_block",
        "y",
        "screen.order('copy_block')",
        "conversation",
        "Chosen",
        "copy its code; again: the next block",
    ),
    Action(
        "edit",
        "e",
        "screen.order('edit_chosen')",
        "conversation",
        "Chosen",
        "edit, send again",
    ),
    Action(
        "retry_message",
        "r",
        "screen.order('retry_chosen')",
        "conversation",
        "Chosen",
        "ask again for this answer",
    ),
    Action(
        "branch",
        "b",
        "screen.order('branch')",
        "conversation",
        "Chosen",
        "go on from here",
    ),
    Action(
        "previous_version",
        "left_square_bracket",
        "screen.order('switch', '-1')",
        "conversation",
        "Chosen",
        "show the version before",
    ),
    Action(
        "next_version",
        "right_square_bracket",
        "screen.order('switch', '1')",
        "conversation",
        "Chosen",
        "show the next version",
    ),
    Action(
        "fold",
        "space",
        "toggle_reasoning",
        "conversation",
        "Chosen",
        "show or fold the thinking",
    ),
    Action(
        "export",
        "x",
        "screen.order('export')",
        "conversation",
        "Chosen",
        "write the conversation to a file",
    ),
    Action(
        "open_link",
        "o",
        "screen.order('open_link')",
        "conversation",
        "Chosen",
        "show its link; again: open it",
    ),
    Action(
        "pager",
        "p",
        "screen.order('pager')",
        "conversation",
        "Chosen",
        "read it in $PAGER",
    ),
    Action(
        "conversation_help",
        "question_mark",
        "screen.order('help')",
        "conversation",
        "Chosen",
        "all keys",
    ),
    Action("first", "g", "top", "conversation", "Chosen", "to the beginning"),
    Action("last", "G,end", "follow", "conversation", "Chosen", "to the end"),
    Action(
        "back", "tab", "screen.step_back", "conversation", "Chosen", "to the prompt"
    ),
)

_NAMES = {
    "underscore": "_",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "escape": "esc",
    "question_mark": "?",
}


def of_scope(scope: Scope) -> Iterator[Action]:
    """The rows that hold in one place."""
    return (row for row in ACTIONS if row.scope == scope)


ENTER_BEGINS_LINES = {
    "newline": "enter,shift+enter",
    "send": "ctrl+enter,alt+enter,ctrl+j",
}
"""Keys for who writes many lines: enter begins one, and others send."""


def rebound(chosen: Mapping[str, str]) -> dict[str, str]:
    """The keys of every action: the person's own, else the table's.

    Args:
        chosen: keys by action id.
    """
    return {row.id: chosen.get(row.id) or row.keys for row in ACTIONS}


def spelled(keys: str) -> str:
    """Keys as a person reads them: ``ctrl+j  shift+enter``."""
    return "  ".join(_spell(key.strip()) for key in keys.split(","))


def _spell(key: str) -> str:
    *modifiers, last = key.split("+")
    return "+".join([*modifiers, _NAMES.get(last, last)])


def clashes(keys: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Keys that two actions of one place share: (key, action, action).

    A key that holds anywhere also holds in the prompt and in the conversation.
    """
    found = []
    taken: dict[tuple[str, str], str] = {}
    for row in ACTIONS:
        for key in keys[row.id].split(","):
            for scope in {row.scope, "anywhere"}:
                other = taken.get((key.strip(), scope))
                if other is not None and other != row.id:
                    found.append((key.strip(), other, row.id))
            taken[key.strip(), row.scope] = row.id
    return found
