# SPDX-License-Identifier: Apache-2.0
"""What is asked: words, files, standard input and instructions become messages."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from splashpy.errors import InputFileError, UsageError

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """Either a conversation or raw text, as a request takes it.

    Attributes:
        messages: OpenAI message objects; empty when ``prompt`` is given.
        prompt: text that no chat template touches.
    """

    messages: tuple[Message, ...] = ()
    prompt: str | None = None


def split_model(words: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """Tell the model's name from the words of the prompt.

    The first word is the model, unless it contains white space, as no model does.
    """
    if not words or not words[0] or any(map(str.isspace, words[0])):
        return None, tuple(words)
    return words[0], tuple(words[1:])


def typed_text(words: Sequence[str], files: Sequence[str], extra: str) -> str:
    """One text of the files, the words and what came on standard input.

    Raises:
        InputFileError: a file is missing, unreadable or not UTF-8 text.
    """
    parts = [*map(quote_file, files), " ".join(words), extra.strip("\n")]
    return "\n\n".join(part for part in parts if part.strip())


def read_input(stdin: TextIO | None) -> str:
    """What standard input holds, when it is not a keyboard.

    Raises:
        InputFileError: it is not UTF-8 text.
    """
    if stdin is None or stdin.isatty():
        return ""
    try:
        if isinstance(stdin, io.TextIOWrapper):  # a locale may hide what is not UTF-8
            return stdin.buffer.read().decode("utf-8")
        return stdin.read()
    except UnicodeDecodeError:
        raise InputFileError("standard input is not UTF-8 text") from None
    except OSError:  # such as a closed descriptor
        return ""


def ask(text: str, *, system: str | None) -> Question:
    """A conversation of one question, after instructions if there are any."""
    messages = [{"role": "user", "content": text}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return Question(messages=tuple(messages))


def read_system(value: str | None) -> str | None:
    """Instructions as written, or from the file after an ``@``.

    Raises:
        InputFileError: the file is missing, unreadable or not UTF-8 text.
    """
    if value is None or not value.startswith("@"):
        return value
    return read_text(value[1:])


def read_messages(path: str) -> tuple[Message, ...]:
    """An array of OpenAI message objects from a JSON file.

    Raises:
        InputFileError: the file is missing or unreadable.
        UsageError: it is not an array of messages with roles.
    """
    try:
        data = json.loads(read_text(path))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON", why=str(error)) from None
    if not isinstance(data, list) or not data:
        raise UsageError(f"{path} is not an array of messages", why=_EXAMPLE)
    for number, message in enumerate(data, start=1):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise UsageError(f"{path}: message {number} has no role", why=_EXAMPLE)
    return tuple(data)


def quote_file(path: str) -> str:
    """A file's name and text, fenced with more backquotes than it contains.

    Raises:
        InputFileError: the file is missing, unreadable or not UTF-8 text.
    """
    text = read_text(path)
    fence = "```"
    while fence in text:
        fence += "`"
    ending = "" if text.endswith("\n") else "\n"
    return f"{Path(path).name}:\n{fence}\n{text}{ending}{fence}"


def read_text(path: str) -> str:
    """The text of a file named on the command line.

    Raises:
        InputFileError: the file is missing, unreadable or not UTF-8 text.
    """
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputFileError(
            f"{path} is not UTF-8 text",
            why=f"byte {error.start} is 0x{error.object[error.start]:02x}",
        ) from None
    except OSError as error:
        raise InputFileError(
            f"{path} cannot be read", why=error.strerror or ""
        ) from None


_EXAMPLE = 'expected [{"role": "user", "content": "..."}, ...]'
