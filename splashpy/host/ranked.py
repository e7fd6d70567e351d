# SPDX-License-Identifier: Apache-2.0
"""What the target thought of tokens, with their spelling, for whoever asked."""

from __future__ import annotations

import base64
import codecs
from collections import deque
from collections.abc import Iterable

from splashpy.dialogue.alignment import TokenPlace
from splashpy.dialogue.detokenizer import token_bytes
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.protocol import Alternative, RankedToken
from splashpy.verification.logprobs import TokenLogprob


class RankedTokens:
    """Numbers of the engine and places of the text, brought together.

    Args:
        tokenizer: of the target.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._waiting: deque[TokenLogprob] = deque()
        self._prompt = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def add(self, found: Iterable[TokenLogprob]) -> None:
        """Take the numbers of tokens the text has been given."""
        self._waiting.extend(found)

    def take(self, places: Iterable[TokenPlace]) -> tuple[RankedToken, ...]:
        """The tokens that belong to the answer, in the order they were added."""
        return tuple(
            self._ranked(self._waiting.popleft(), place)
            for place in places
            if self._waiting
        )

    def prompt(self, found: Iterable[TokenLogprob]) -> tuple[RankedToken, ...]:
        """The next tokens of the prompt; BOS is no part of its text."""
        ranked = []
        for item in found:
            place = TokenPlace("c", self._offset)
            ranked.append(self._ranked(item, place))
            tokenizer = self._tokenizer
            begins = item.logprob is None and tokenizer.adds_bos
            if not begins or item.token_id != tokenizer.bos_token_id:
                spelled = token_bytes(tokenizer, item.token_id)
                self._offset += len(self._prompt.decode(spelled))
        return tuple(ranked)

    def _ranked(self, found: TokenLogprob, place: TokenPlace) -> RankedToken:
        return RankedToken(
            token_id=found.token_id,
            piece=self._spelled(found.token_id),
            logprob=found.logprob,
            channel=place.channel,
            offset=place.offset,
            top=tuple(
                Alternative(token_id=i, piece=self._spelled(i), logprob=value)
                for i, value in found.top
            ),
        )

    def _spelled(self, token_id: int) -> str:
        return base64.b64encode(token_bytes(self._tokenizer, token_id)).decode()
