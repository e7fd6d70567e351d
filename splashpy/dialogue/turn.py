# SPDX-License-Identifier: Apache-2.0
"""One answer on its way from token ids to tagged text.

Token by token: end tokens stop the answer, the detokenizer makes text, the splitter
tells reasoning from content, tool calls are read out of the content, and stop strings
are looked for in what remains. Text that was held back takes the kind of the token that
completed it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from splashpy.dialogue.alignment import Alignment, TokenPlace
from splashpy.dialogue.channels import ChannelSplitter, Run
from splashpy.dialogue.detokenizer import StreamDetokenizer
from splashpy.dialogue.sections import SectionSplitter
from splashpy.dialogue.stops import StopMatcher
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.dialogue.tools.calling import Calling
from splashpy.dialogue.tools.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Markup,
    Prose,
    ToolEvent,
)
from splashpy.dialogue.xtml_channels import XtmlSplitter
from splashpy.protocol import Channel, FinishReason, Kind, Piece


@dataclass(frozen=True, slots=True)
class CallPart:
    """Part of a tool call: its name, or more of its arguments, or its end."""

    index: int
    name: str = ""
    call_id: str = ""
    arguments: str = ""
    ended: Literal["", "whole", "broken"] = ""


@dataclass(frozen=True, slots=True)
class TurnDelta:
    """What some tokens led to.

    Attributes:
        parts: new text and calls in order; texts side by side differ in kind or
            channel.
        stopped: the answer ended with the last token used.
        tokens_used: how many of the tokens belong to the answer.
    """

    parts: tuple[Piece | CallPart, ...]
    stopped: bool
    tokens_used: int

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The texts among the parts."""
        return tuple(part for part in self.parts if isinstance(part, Piece))


class Turn:
    """The text path of one answer.

    Args:
        tokenizer: of the target.
        splitter: tells its channels apart.
        stops: strings that end the answer and are not part of it. One that is a
            special token stops by its id, since special tokens have no text.
        end_ids: tokens that end the answer; None takes the model's own. The model's
            end tokens have no text even where they end nothing.
        calling: reads tool calls out of the content; None leaves them in it.

    Attributes:
        completion_tokens: tokens of the answer so far, with the one that ended it.
        reasoning_tokens: those inside a reasoning block, its tags not counted.
        stopped: nothing more will come.
        stop_text: the stop string that ended the answer; empty where none did.

    Raises:
        UsageError: a stop string is empty.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        splitter: ChannelSplitter | SectionSplitter | XtmlSplitter,
        stops: Iterable[str] = (),
        end_ids: Collection[int] | None = None,
        calling: Calling | None = None,
    ) -> None:
        stops = tuple(stops)
        ends = tokenizer.eos_token_ids if end_ids is None else frozenset(end_ids)
        self._ends = ends.union(
            token_id
            for stop in stops
            if (token_id := tokenizer.id_of(stop)) is not None
            and tokenizer.is_special(token_id)
        )
        self._silent = tokenizer.eos_token_ids
        self._detokenizer = StreamDetokenizer(tokenizer)
        self._splitter = splitter
        self._stops = StopMatcher(stops)
        self._calling = calling
        self._begun = calling is None
        self._last_kind: Kind = "t"
        self._closed = self._cut = False
        self._searched = 0  # characters that passed the search for stops
        self._written = 0  # characters of all tokens
        self._alignment: Alignment | None = None
        self._ends_as_text = {
            token_id: stop
            for stop in stops
            if (token_id := tokenizer.id_of(stop)) is not None
        }
        self.completion_tokens = 0
        self.reasoning_tokens = 0
        self.stopped = False
        self.stop_text = ""

    @property
    def calls(self) -> int:
        """Tool calls that are complete."""
        return self._calling.calls if self._calling else 0

    def align(self) -> None:
        """Follow single tokens from here on, for ``settled``."""
        self._alignment = Alignment()

    def settled(self) -> tuple[TokenPlace, ...]:
        """Tokens that certainly belong to the answer, beyond those told before.

        In the order they were fed; a token that ends the answer is none of them, nor is
        one whose text comes after a stop string began.
        """
        return self._alignment.take() if self._alignment else ()

    def feed(self, token_ids: Sequence[int], kinds: Sequence[Kind]) -> TurnDelta:
        """Take the tokens of one cycle; those after a stop are not looked at.

        Args:
            token_ids: committed tokens, in order.
            kinds: where each came from.

        Raises:
            ValueError: there is not one kind per token.
        """
        if len(token_ids) != len(kinds):
            raise ValueError(f"{len(token_ids)} tokens need as many kinds: {kinds!r}")
        parts = self._begin()
        used = 0
        for token_id, kind in zip(token_ids, kinds, strict=True):
            if self.stopped:
                break
            used += 1
            self._last_kind = kind
            begin, offset = self._searched + self._stops.held, self._written
            channel = self._add(token_id, parts)
            if self._alignment is not None and channel is not None:
                self._alignment.add(begin, TokenPlace(channel, offset))
                self._settle()
        self.completion_tokens += used
        return TurnDelta(_merged(parts), self.stopped, used)

    def finish(self, reason: FinishReason) -> tuple[Piece | CallPart, ...]:
        """Text that was still held back; none after a stop string.

        A cancelled answer drops half a character, any other shows it as U+FFFD.
        """
        parts = self._begin()
        if not self._closed:
            rest = "" if reason == "cancelled" else self._detokenizer.flush()
            self._emit(self._splitter.feed(rest), parts)
            self._emit(self._splitter.flush(), parts)
        if self._calling is not None and not self.stop_text:
            for event in self._calling.finish(cut=reason != "stop"):
                self._take(event, parts)
        self._release_content(parts)
        self._closed = self.stopped = True
        if self._alignment is not None:
            self._alignment.settle(self._searched if self._cut else None)
        return _merged(parts)

    def _begin(self) -> list[Piece | CallPart]:
        """What a forced beginning of the answer already says, once."""
        parts: list[Piece | CallPart] = []
        if self._calling is not None and not self._begun:
            self._begun = True
            for event in self._calling.begin():
                if not isinstance(event, Markup):
                    self._take(event, parts)
        return parts

    def _add(self, token_id: int, parts: list[Piece | CallPart]) -> Channel | None:
        """Take a token; what it is part of, None for one that ends the answer."""
        was_inside = self._splitter.inside
        calling = self._calling
        in_call = calling is not None and calling.inside
        if token_id in self._ends:
            self.stopped = True
            self.stop_text = self._ends_as_text.get(token_id, "")
            return None
        if tag := self._splitter.is_tag(token_id):
            self._emit(self._splitter.feed(self._detokenizer.flush()), parts)
            self._emit(self._splitter.switch(token_id), parts)
        elif calling and not was_inside and calling.is_marker(token_id):
            self._emit(self._splitter.feed(self._detokenizer.flush()), parts)
            self._emit(self._splitter.interrupt(), parts)
            for event in calling.marker(token_id):
                self._take(event, parts)
            in_call = True
        elif token_id not in self._silent:
            text = self._detokenizer.add(token_id)
            self._written += len(text)
            self._emit(self._splitter.feed(text), parts)
        self.reasoning_tokens += was_inside and self._splitter.inside
        if tag or was_inside or self._splitter.inside:
            return "r"
        return "x" if in_call or (calling is not None and calling.inside) else "c"

    def _settle(self) -> None:
        """Say which tokens are certain after the last one."""
        assert self._alignment is not None
        held = self._stops.held or self._detokenizer.holding or self._splitter.holding
        held = held or (self._calling is not None and self._calling.holding)
        self._alignment.settle(self._searched if self._cut or held else None)

    def _emit(self, runs: Iterable[Run], parts: list[Piece | CallPart]) -> None:
        for text, channel in runs:
            if self._closed:
                return
            if channel == "r":
                self._release_content(parts)
                parts.append(Piece(text, self._last_kind, channel))
                if self._calling is not None:
                    self._calling.note_reasoning(text)
            elif self._calling is None:
                self._take(Prose(text), parts)
            else:
                for event in self._calling.feed(text):
                    self._take(event, parts)

    def _take(self, event: ToolEvent, parts: list[Piece | CallPart]) -> None:
        if self._closed:
            return
        if isinstance(event, Prose):
            self._take_prose(event.text, parts)
            return
        self._release_content(parts)
        if isinstance(event, Markup):
            parts.append(Piece(event.text, self._last_kind, "x"))
        elif isinstance(event, CallStart):
            parts.append(CallPart(event.index, event.name, event.call_id))
        elif isinstance(event, CallArguments):
            parts.append(CallPart(event.index, arguments=event.text))
        else:
            self._end_call(event, parts)

    def _end_call(self, event: CallEnd, parts: list[Piece | CallPart]) -> None:
        ended = "whole" if event.complete else "broken"
        parts.append(CallPart(event.index, ended=ended))
        if event.complete and self._calling and self._calling.single:
            self._closed = self.stopped = True

    def _take_prose(self, text: str, parts: list[Piece | CallPart]) -> None:
        found = self._stops.feed(text)
        self._searched += len(found.text)
        if found.text:
            parts.append(Piece(found.text, self._last_kind, "c"))
        if found.matched is not None:
            self._closed = self.stopped = self._cut = True
            self.stop_text = found.matched

    def _release_content(self, parts: list[Piece | CallPart]) -> None:
        text = self._stops.flush()
        self._searched += len(text)
        if text and not self._closed:
            parts.append(Piece(text, self._last_kind, "c"))


def _merged(parts: Iterable[Piece | CallPart]) -> tuple[Piece | CallPart, ...]:
    """Neighbours of the same kind and channel as one piece."""
    merged: list[Piece | CallPart] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, Piece) and isinstance(last, Piece) and last[1:] == part[1:]:
            merged[-1] = part._replace(text=last.text + part.text)
        else:
            merged.append(part)
    return tuple(merged)
