# SPDX-License-Identifier: Apache-2.0
"""The tokens of a model for filling gaps."""

from __future__ import annotations

from splashpy.dialogue.infill import InfillTokens


def test_a_gap_ends_with_any_of_its_tokens_the_first_of_the_vocabulary_too() -> None:
    tokens = InfillTokens(
        prefix=1, suffix=2, middle=3, repository=0, file=None, others=frozenset({4})
    )
    assert tokens.ends == {0, 1, 2, 3, 4}
