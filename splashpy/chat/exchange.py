# SPDX-License-Identifier: Apache-2.0
"""Saved conversations as files: Markdown to read, JSON to read back.

The JSON form holds the whole tree (schema ``splashpy.conversation/1``); Markdown holds
the shown path.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from splashpy.chat.entries import Attachment
from splashpy.chat.history import fenced_file
from splashpy.chat.saved import SavedConversation, SavedMessage, problem_of
from splashpy.chat.settings import ChatSettings
from splashpy.errors import InputFileError
from splashpy.protocol import Done, Generate
from splashpy.wire import check, event_from_line

SCHEMA = "splashpy.conversation/1"
_LARGEST_FILE = 64 << 20  # bytes of a conversation that is read back
_NAME_CHARACTERS = 40
_WRONG = (ValueError, KeyError, TypeError, AttributeError)  # in data of any shape


def to_markdown(conversation: SavedConversation, *, reasoning: bool = False) -> str:
    """The shown path as a document.

    Args:
        conversation: what to write.
        reasoning: also what the model thought, folded.
    """
    parts = [_front_matter(conversation)]
    if conversation.system:
        parts.append(f"## System\n\n{conversation.system}\n")
    for message in conversation.path():
        speaker = "You" if message.role == "user" else message.model or "Assistant"
        parts.append(f"## {speaker}\n")
        parts += [fenced_file(file) for file in message.attachments]
        if reasoning and message.reasoning:
            parts.append(
                "<details><summary>Thinking</summary>\n\n"
                f"{message.reasoning.strip()}\n\n</details>\n"
            )
        parts.append(message.content.rstrip() + "\n")
        if message.state in ("partial", "stopped", "error"):
            parts.append(f"*({message.state})*\n")
    return "\n".join(parts)


def _front_matter(conversation: SavedConversation) -> str:
    facts: dict[str, Any] = {
        "title": conversation.title,
        "model": conversation.model,
        "created": conversation.created_at,
        **conversation.parameters,
    }
    # A JSON string is a YAML string too, whatever is in it.
    lines = [
        f"{key}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in facts.items()
    ]
    return "\n".join(["---", *lines, "---", ""])


def to_json(conversation: SavedConversation) -> str:
    """The whole tree."""
    data = asdict(conversation)
    for message in data["messages"]:
        message["trace"] = base64.b64encode(message["trace"]).decode("ascii")
    return json.dumps({"schema": SCHEMA, **data}, ensure_ascii=False, indent=1) + "\n"


def from_json(text: str, *, new_id: Callable[[], str]) -> SavedConversation:
    """A conversation from its JSON form, under ids of its own.

    So an import never touches what is there already.

    Args:
        text: what :func:`to_json` gave.
        new_id: makes an id.

    Raises:
        InputFileError: it is something else.
    """
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise ValueError(f"its schema is {data['schema']!r}")
        messages = list(_messages(data["messages"], new_id))
        parameters = dict(data.get("parameters") or {})
        _check_parameters(parameters)
        ids = {old: message.id for old, message in messages}
        renamed = tuple(
            replace(message, parent=ids.get(message.parent or ""))
            for _, message in messages
        )
        return SavedConversation(
            id=new_id(),
            title=_text(data, "title"),
            created_at=_text(data, "created_at"),
            model=_text(data, "model"),
            system=data["system"]
            if data.get("system") is None
            else _text(data, "system"),
            parameters=parameters,
            leaf=ids.get(data.get("leaf")),
            messages=renamed,
        )
    except (*_WRONG, RecursionError) as error:
        raise InputFileError(
            "this is not an exported conversation",
            why=f"{SCHEMA} is expected: {error}",
            fix=["splashpy history export ID -o conversation.json"],
        ) from None


def _messages(
    rows: list[Mapping[str, Any]], new_id: Callable[[], str]
) -> Iterator[tuple[str, SavedMessage]]:
    seen: set[str] = set()
    for row in rows:
        role, state = _text(row, "role"), str(row.get("state", "complete"))
        if role not in ("user", "assistant"):
            raise ValueError(f"there is no role {role!r}")
        if state not in ("complete", "stopped", "partial", "error", "streaming"):
            raise ValueError(f"there is no state {state!r}")
        if row.get("parent") is not None and row["parent"] not in seen:
            raise ValueError("a message comes before the one it follows")
        seen.add(_text(row, "id"))
        files = row.get("attachments") or ()
        yield (
            row["id"],
            SavedMessage(
                id=new_id(),
                parent=row.get("parent"),
                role="user" if role == "user" else "assistant",
                content=_text(row, "content"),
                created_at=_text(row, "created_at"),
                model=str(row.get("model", "")),
                reasoning=str(row.get("reasoning", "")),
                tool_text=str(row.get("tool_text", "")),
                state="partial" if state == "streaming" else state,
                done=_finished(row.get("done")),
                error=asdict(problem_of(row["error"])) if row.get("error") else None,
                trace=base64.b64decode(row.get("trace", ""), validate=True),
                left_out=row.get("left_out") is True,
                attachments=tuple(
                    Attachment(_text(file, "name"), _text(file, "text"))
                    for file in files
                ),
            ),
        )


def _check_parameters(parameters: Mapping[str, Any]) -> None:
    """Say now what the engine, or a page that shows them, would fail with.

    Raises:
        ValueError: one has a type it cannot have.
    """
    settings = ChatSettings().with_parameters(parameters)
    check(
        Generate(
            id="",
            sampling=settings.sampling,
            max_tokens=settings.max_tokens,
            effort=settings.effort,
            draft=settings.draft,
        )
    )


def _finished(fields: Any) -> Mapping[str, Any] | None:
    """The ``Done`` event of a finished answer, all of it as declared."""
    if fields is not None and not isinstance(event_from_line(json.dumps(fields)), Done):
        raise ValueError("an answer ended with something else than done")
    return fields


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is {type(value).__name__}, not text")
    return value


def read_json(path: Path, *, new_id: Callable[[], str]) -> SavedConversation:
    """A conversation from a file.

    Raises:
        InputFileError: it cannot be read, or is something else.
    """
    try:
        if path.exists() and not path.is_file():
            raise InputFileError(f"{path} is not a file")
        if path.stat().st_size > _LARGEST_FILE:
            raise InputFileError(f"{path} is too large", why="64 MB is the most")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputFileError(
            f"{path} cannot be read", why=error.strerror or ""
        ) from None
    except UnicodeDecodeError:
        raise InputFileError(f"{path} is not UTF-8 text") from None
    return from_json(text, new_id=new_id)


def write_text(path: Path, text: str) -> None:
    """Write a file that only its owner may read; an existing one is not replaced.

    Raises:
        InputFileError: it is there already, or cannot be written.
    """
    try:
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(text, encoding="utf-8", errors="replace")
    except FileExistsError:
        raise InputFileError(f"{path} exists", why="it is not replaced") from None
    except OSError as error:
        raise InputFileError(
            f"{path} cannot be written", why=error.strerror or ""
        ) from None


def file_name(conversation: SavedConversation, suffix: str) -> str:
    """A name for the file of a conversation: words of its title."""
    words = "".join(c if c.isalnum() else " " for c in conversation.title.lower())
    name = "-".join(words.split())[:_NAME_CHARACTERS].strip("-")
    return f"{name or conversation.id}.{suffix}"
