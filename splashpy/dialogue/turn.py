# SPDX-License-Identifier: Apache-2.0
"""One answer on its way from token ids to tagged text.

Token by token: end tokens stop the answer, the detokenizer makes text, the splitter
tells reasoning from content, and stop strings are looked for in the content only.
Text that was held back takes the kind of the token that completed it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from splashpy.dialogue.channels import ChannelSplitter, Run
from splashpy.dialogue.detokenizer import StreamDetokenizer
from splashpy.dialogue.stops import StopMatcher
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.protocol import FinishReason, Kind, Piece


@dataclass(frozen=True, slots=True)
class TurnDelta:
    """What some tokens led to.

    Attributes:
        pieces: new text; neighbours differ in kind or channel.
        stopped: the answer ended with the last token used.
        tokens_used: how many of the tokens belong to the answer.
    """

    pieces: tuple[Piece, ...]
    stopped: bool
    tokens_used: int


class Turn:
    """The text path of one answer.

    Args:
        tokenizer: of the target.
        splitter: tells its channels apart.
        stops: strings that end the answer and are not part of it. One that is a
            special token stops by its id, since special tokens have no text.
        end_ids: tokens that end the answer; None takes the model's own. The model's
            end tokens have no text even where they end nothing.

    Attributes:
        completion_tokens: tokens of the answer so far, with the one that ended it.
        reasoning_tokens: those inside a reasoning block, its tags not counted.
        stopped: nothing more will come.

    Raises:
        UsageError: a stop string is empty.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        splitter: ChannelSplitter,
        stops: Iterable[str] = (),
        end_ids: Collection[int] | None = None,
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
        self._last_kind: Kind = "t"
        self._closed = False
        self.completion_tokens = 0
        self.reasoning_tokens = 0
        self.stopped = False

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
        pieces: list[Piece] = []
        used = 0
        for token_id, kind in zip(token_ids, kinds, strict=True):
            if self.stopped:
                break
            used += 1
            self._last_kind = kind
            self._add(token_id, pieces)
        self.completion_tokens += used
        return TurnDelta(_merged(pieces), self.stopped, used)

    def finish(self, reason: FinishReason) -> tuple[Piece, ...]:
        """Text that was still held back; none after a stop string.

        A cancelled answer drops half a character, any other shows it as U+FFFD.
        """
        pieces: list[Piece] = []
        if not self._closed:
            rest = "" if reason == "cancelled" else self._detokenizer.flush()
            self._emit(self._splitter.feed(rest), pieces)
            self._emit(self._splitter.flush(), pieces)
            self._release_content(pieces)
        self._closed = self.stopped = True
        return _merged(pieces)

    def _add(self, token_id: int, pieces: list[Piece]) -> None:
        was_inside = self._splitter.inside
        if token_id in self._ends:
            self.stopped = True
            return
        if self._splitter.is_tag(token_id):
            self._emit(self._splitter.feed(self._detokenizer.flush()), pieces)
            self._emit(self._splitter.switch(token_id), pieces)
        elif token_id not in self._silent:
            self._emit(self._splitter.feed(self._detokenizer.add(token_id)), pieces)
        self.reasoning_tokens += was_inside and self._splitter.inside

    def _emit(self, runs: Iterable[Run], pieces: list[Piece]) -> None:
        for text, channel in runs:
            if self._closed:
                return
            if channel == "r":
                self._release_content(pieces)
                pieces.append(Piece(text, self._last_kind, channel))
                continue
            found = self._stops.feed(text)
            if found.text:
                pieces.append(Piece(found.text, self._last_kind, channel))
            if found.matched is not None:
                self._closed = self.stopped = True

    def _release_content(self, pieces: list[Piece]) -> None:
        text = self._stops.flush()
        if text and not self._closed:
            pieces.append(Piece(text, self._last_kind, "c"))


def _merged(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Neighbours of the same kind and channel as one piece."""
    merged: list[Piece] = []
    for piece in pieces:
        if merged and merged[-1][1:] == piece[1:]:
            merged[-1] = piece._replace(text=merged[-1].text + piece.text)
        else:
            merged.append(piece)
    return tuple(merged)
