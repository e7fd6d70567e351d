# SPDX-License-Identifier: Apache-2.0
"""Which token stands for "not written yet" in a drafter's block.

A drafter sees the mask token in every position it fills, so the token must never occur
in a text. Tokens that were made for such a purpose come first, then rows of the
embedding that no token uses, then control tokens that neither the chat template nor
any text has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.errors import UsageError
from splashpy.host.model import Speech
from splashpy.training.examples import Example

_MASK = re.compile(r"mask", re.IGNORECASE)
_SPARE = re.compile(r"reserved|unused|extra_id|placeholder", re.IGNORECASE)
_SPARE_ROW = "a row of the embedding that no token uses"
_BUSY = re.compile(r"pad|unk|bos|eos|endoftext", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MaskToken:
    """A choice and its reason.

    Attributes:
        token_id: the token.
        about: its spelling, or what it is when it has none.
        texts: how many texts contain it; more than none weakens a drafter.
    """

    token_id: int
    about: str
    texts: int

    def __str__(self) -> str:
        texts = f"{self.texts or 'no'} text{'s' if self.texts > 1 else ''}"
        return f"mask token {self.token_id} ({self.about}), in {texts}"


def choose_mask_token(
    speech: Speech, vocab_size: int, texts: Iterable[Example]
) -> MaskToken:
    """The best token that no text contains, or else the one in the fewest texts.

    Args:
        speech: the target's tokenizer and template.
        vocab_size: rows of the target's embedding.
        texts: what the drafter will learn from.

    Raises:
        UsageError: every token has another use.
    """
    texts = list(texts)
    offers = [
        MaskToken(token_id, about, _containing(token_id, texts))
        for token_id, about in dict.fromkeys(_offers(speech, vocab_size))
    ]
    if not offers:
        raise UsageError(
            "this model has no token that could be the mask",
            why="no reserved token, spare row of the embedding or idle control token",
            fix=["--mask-token-id N, a token that no text contains"],
        )
    return min(offers, key=lambda each: each.texts)


def named_mask_token(
    token_id: int, speech: Speech, vocab_size: int, texts: Iterable[Example]
) -> MaskToken:
    """A token that somebody chose.

    Raises:
        UsageError: there is no such token.
    """
    if token_id >= vocab_size:
        raise UsageError(
            f"--mask-token-id {token_id}: the largest token is {vocab_size - 1}"
        )
    about = speech.tokenizer.token_of(token_id) or _SPARE_ROW
    return MaskToken(token_id, about, _containing(token_id, texts))


def _containing(token_id: int, texts: Iterable[Example]) -> int:
    return sum(token_id in each.token_ids for each in texts)


def _offers(speech: Speech, vocab_size: int) -> list[tuple[int, str]]:
    """Tokens and what they are, the best first."""
    tokenizer = speech.tokenizer
    controls = _controls(tokenizer, vocab_size)
    rows = (row for row in range(vocab_size) if tokenizer.token_of(row) is None)
    spare = [(row, _SPARE_ROW) for row in rows]
    busy = {*tokenizer.eos_token_ids, tokenizer.bos_token_id}
    idle = [
        (token_id, name)
        for token_id, name in controls
        if token_id not in busy
        and name not in speech.template.source
        and not _BUSY.search(name)
    ]
    return [
        *(each for each in idle if _MASK.search(each[1])),
        *(each for each in idle if _SPARE.search(each[1])),
        *spare[:1],
        *idle,
    ]


def _controls(tokenizer: Tokenizer, vocab_size: int) -> list[tuple[int, str]]:
    ids = filter(tokenizer.is_special, range(vocab_size))
    return [(token_id, tokenizer.token_of(token_id) or "") for token_id in ids]
