# SPDX-License-Identifier: Apache-2.0
"""Texts to learn from, as token ids on disk.

A corpus is a directory of shards, ``examples-00000.jsonl`` and so on, one JSON object
a line. A shard appears whole or not at all, so a run that was interrupted goes on at
the first missing one. ``corpus.json`` records what the shards were made from; a run
with other settings is refused rather than mixed in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from splashpy.errors import InputFileError, UsageError
from splashpy.training.files import read_json, write_atomic

_SETTINGS = "corpus.json"
_ENDS = "ends"  # how many conversations there were to be, by every call
_SHARES = 1 << 32
_MOST_TOKENS = 1 << 31  # ids are int32 in a batch


@dataclass(frozen=True, slots=True)
class Example:
    """One answer of the target and everything before it.

    Attributes:
        token_ids: prompt and answer, a stop token at the end included.
        start: where the answer begins.
        conversation: digest of what the user said first, the same for all answers of
            a conversation, and for all conversations that begin so.
    """

    token_ids: tuple[int, ...]
    start: int
    conversation: str

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """What the target answered."""
        return self.token_ids[: self.start]

    @property
    def digest(self) -> str:
        """Names this text, in files beside the corpus."""
        return digest(",".join(map(str, self.token_ids)))

    def held_out(self, share: float) -> bool:
        """Whether this conversation is kept for evaluation.

        Decided by the conversation's digest alone: adding texts moves none between
        training and evaluation.
        """
        return int(self.conversation[:8], 16) < share * _SHARES


class Corpus:
    """Shards of examples in a directory.

    Args:
        directory: made when it does not exist.
    """

    def __init__(self, directory: Path):
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def claim(self, settings: Mapping[str, Any]) -> None:
        """Record what the shards are made from.

        Raises:
            UsageError: the corpus was begun with other settings.
        """
        begun = self._recorded()
        if not begun:
            self._record(settings)
            return
        begun.pop(_ENDS, None)
        names = sorted(begun.keys() | settings.keys())
        differing = [n for n in names if begun.get(n) != settings.get(n)]
        if differing:
            raise UsageError(
                f"{self.directory} holds texts made with other settings",
                why="; ".join(
                    f"{name} was {begun.get(name)!r}, now {settings.get(name)!r}"
                    for name in differing
                ),
                fix=["use the same settings, or a new directory"],
            )

    def sizes(self, total: int, batch: int) -> list[int]:
        """Conversations of every shard, written or not.

        Args:
            total: conversations in all.
            batch: of a shard, except of the last one of every call that asked for more.
        """
        ends = [end for end in self._recorded().get(_ENDS, ()) if end < total]
        sizes: list[int] = []
        for begin, end in pairwise([0, *ends, total]):
            sizes += [batch] * ((end - begin) // batch)
            sizes += [left] if (left := (end - begin) % batch) else []
        return sizes

    def extend(self, total: int, batch: int) -> list[int]:
        """Ask for so many conversations in all; returns ``sizes``."""
        sizes = self.sizes(total, batch)
        if self.next_shard < len(sizes):
            recorded = self._recorded()
            ends = sorted({*recorded.get(_ENDS, ()), total})
            self._record({**recorded, _ENDS: ends})
        return sizes

    @property
    def next_shard(self) -> int:
        """Number of the first shard that does not exist yet."""
        number = 0
        while self._shard(number).exists():
            number += 1
        return number

    def write_shard(self, number: int, examples: Iterable[Example]) -> None:
        """Add one shard; it may be empty."""
        lines = [json.dumps(asdict(each), separators=(",", ":")) for each in examples]
        write_atomic(self._shard(number), "".join(line + "\n" for line in lines))

    def examples(self) -> Iterator[Example]:
        """Every example once, in order; of equal prompts the first one counts.

        Raises:
            InputFileError: a shard is damaged.
        """
        seen: set[tuple[int, ...]] = set()
        for number in range(self.next_shard):
            for example in self._read(self._shard(number)):
                if example.prompt_ids not in seen:
                    seen.add(example.prompt_ids)
                    yield example

    def _recorded(self) -> dict[str, Any]:
        path = self.directory / _SETTINGS
        return read_json(path) if path.exists() else {}

    def _record(self, settings: Mapping[str, Any]) -> None:
        text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
        write_atomic(self.directory / _SETTINGS, text)

    def _shard(self, number: int) -> Path:
        return self.directory / f"examples-{number:05d}.jsonl"

    def _read(self, path: Path) -> Iterator[Example]:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            try:
                yield _example(json.loads(line))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise InputFileError(
                    f"{path}: line {number} is damaged",
                    why=f"{type(error).__name__}: {error}",
                    fix=[f"remove {path} and make the texts again"],
                ) from None


def _example(raw: Any) -> Example:
    """A line of a shard; raises ValueError, KeyError or TypeError."""
    token_ids, start, conversation = raw["token_ids"], raw["start"], raw["conversation"]
    if not all(type(token) is int and 0 <= token < _MOST_TOKENS for token in token_ids):
        raise ValueError("token_ids is no list of token ids")
    if type(start) is not int or not 0 < start <= len(token_ids):
        raise ValueError(f"an answer begins at {start} of {len(token_ids)} tokens")
    int(conversation, 16)
    return Example(tuple(token_ids), start, conversation)


def digest(text: str) -> str:
    """A name made from a text: 32 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def read_conversations(path: Path) -> list[list[dict[str, Any]]]:
    """Conversations whose answers the target shall write anew.

    Each line is ``{"prompt": "..."}`` or ``{"messages": [...]}``; answers in the file
    are dropped.

    Returns:
        Per line its messages without those of the assistant.

    Raises:
        InputFileError: the file cannot be read, or a line is neither form.
    """
    try:
        # Not splitlines: a string in JSON may hold other separators of lines.
        lines = path.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(f"{path} cannot be read", why=str(error)) from None
    return [
        _messages(line, f"{path}: line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def _messages(line: str, where: str) -> list[dict[str, Any]]:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"{where} is not JSON", why=str(error)) from None
    if isinstance(raw, dict) and isinstance(raw.get("prompt"), str):
        return [{"role": "user", "content": raw["prompt"]}]
    messages = raw.get("messages") if isinstance(raw, dict) else None
    if isinstance(messages, list) and all(isinstance(each, dict) for each in messages):
        asked: Sequence[dict[str, Any]] = messages
        kept = [each for each in asked if each.get("role") != "assistant"]
        if any(each.get("role") == "user" for each in kept):
            return kept
    raise InputFileError(
        f"{where} is no conversation",
        why='expected {"prompt": "..."} or {"messages": [...]} with a user message',
    )
