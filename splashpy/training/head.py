# SPDX-License-Identifier: Apache-2.0
"""Which tokens a restricted head keeps: those a model writes most often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence


def frequent_tokens(texts: Iterable[Sequence[int]], count: int) -> list[int]:
    """The most frequent tokens, at most ``count``, ascending; ties go to the lower id.

    Args:
        texts: token ids.
        count: how many are wanted.
    """
    seen = Counter(token for text in texts for token in text)
    ranked = sorted(seen, key=lambda token: (-seen[token], token))
    return sorted(ranked[:count])
