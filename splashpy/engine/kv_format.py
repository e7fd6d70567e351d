# SPDX-License-Identifier: Apache-2.0
"""Which format of keys and values ``--kv auto`` stands for.

Rows as they are computed are the target's own numbers, and attention over rounded rows
is not faster. So rows are rounded only where the context would not fit otherwise.
"""

from __future__ import annotations

from splashpy.protocol import KvFormat

LONG_CONTEXT = 65536
"""Tokens that shall fit where no context was asked for."""

RESERVE_BYTES = 3 << 30
"""For everything else: what a prompt's chunks compute, and other programs."""


def kv_format(
    *, rows: int, asked: bool, row_nbytes: int, taken: int, memory_bytes: int
) -> KvFormat:
    """``bf16`` where its rows fit beside the weights, else ``q8``.

    Args:
        rows: tokens of prompt plus answer.
        asked: somebody asked for exactly that many; else more than
            :data:`LONG_CONTEXT` need not fit.
        row_nbytes: bytes one token adds in bf16.
        taken: bytes of the weights.
        memory_bytes: of the machine; 0 where it is not known.
    """
    rows = rows if asked else min(rows, LONG_CONTEXT)
    fits = taken + RESERVE_BYTES + rows * row_nbytes <= memory_bytes
    return "bf16" if fits or not memory_bytes else "q8"
