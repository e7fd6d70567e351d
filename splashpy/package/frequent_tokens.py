# SPDX-License-Identifier: Apache-2.0
"""``frequent_tokens.json``: the only tokens a drafter is meant to draft.

The target's head over its whole vocabulary is most of what a small drafter costs, and a
few thousand tokens make up nearly all of a text. A drafter may therefore bring a list
of them beside its config.json. Engines that do not know the file draft from the whole
vocabulary; either way the target decides what is written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from splashpy.errors import ModelKindError
from splashpy.package.fields import Fields, read_json

FILE_NAME = "frequent_tokens.json"

_KEY = "token_ids"
_FIX = ("delete the file, to draft from the whole vocabulary",)


def read_frequent_tokens(
    directory: Path, *, vocab_size: int, at_least: int = 1
) -> tuple[int, ...] | None:
    """The list of a drafter's directory; None without one.

    Args:
        directory: of the drafter.
        vocab_size: the drafter's; every id lies below it.
        at_least: how many tokens there must be.

    Raises:
        ModelKindError: the ids are not ascending, out of range, or too few.
        IntegrityError: the file is not JSON.
    """
    path = directory / FILE_NAME
    if not path.is_file():
        return None
    token_ids = Fields(read_json(path), str(path)).integers(_KEY)
    reason = _fault(token_ids, vocab_size, at_least)
    if reason:
        raise ModelKindError(f"{path}: {_KEY} {reason}", fix=_FIX)
    return token_ids


def frequent_tokens_text(
    token_ids: Sequence[int], *, vocab_size: int, at_least: int = 1
) -> str:
    """The content of the file; the arguments are those of reading it.

    Raises:
        ValueError: the list would be refused.
    """
    reason = _fault(token_ids, vocab_size, at_least)
    if reason:
        raise ValueError(f"the list of frequent tokens {reason}")
    return json.dumps({_KEY: list(token_ids)}) + "\n"


def _fault(token_ids: Sequence[int], vocab_size: int, at_least: int) -> str:
    for first, second in pairwise(token_ids):
        if first >= second:
            return f"must ascend without repetition, has {second} after {first}"
    if len(token_ids) < at_least:
        return f"must list at least {at_least} tokens, lists {len(token_ids)}"
    if token_ids[-1] >= vocab_size:
        return f"has {token_ids[-1]}, the drafter's vocabulary ends at {vocab_size - 1}"
    return ""
