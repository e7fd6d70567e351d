# SPDX-License-Identifier: Apache-2.0
"""The ledger of a loaded model: what is claimed from the start, and who gives back."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from splashpy.cache.prefix import PrefixCache
from splashpy.engine.lane_claim import LaneSize
from splashpy.engine.loading import Loaded
from splashpy.engine.memory_ledger import MemoryLedger, Source
from splashpy.protocol import Shed

_WRITE_SECONDS = 5.0  # a text waits no longer for copies on their way to disk


def open_ledger(
    loaded: Loaded,
    cache: PrefixCache | None,
    *,
    shed: Callable[[Shed], None] = lambda event: None,
    others: int = 0,
    in_use: Callable[[], int] = mx.get_active_memory,
) -> MemoryLedger:
    """The ledger of a model that was just loaded.

    Args:
        loaded: the model; its plan says what may be used.
        cache: of states of earlier requests, which count and may go.
        shed: learns when states of earlier requests were given up for a text.
        others: bytes that were allocated before the model was loaded; whoever has
            them in this process, the plan is not about them.
        in_use: bytes that are really allocated.
    """

    def tell(source: Source, nbytes: int) -> None:
        if nbytes and source == "stored":
            shed(Shed(level="normal", action="states", held=nbytes))

    plan = loaded.plan
    budget = plan.budget if plan else 0
    ledger = MemoryLedger(budget, lambda: max(in_use() - others, 0), tell)
    ledger.claim("weights", loaded.target.facts.weight_bytes + loaded.draft_bytes)
    ledger.claim("scratch", plan.needs.workspace if plan else 0)
    ledger.offer("buffers", lambda _: drop_buffers())
    if cache is not None:
        ledger.measure("runs", lambda: cache.nbytes - cache.kept_nbytes)
        ledger.measure("states", lambda: cache.kept_nbytes)
        ledger.measure("staging", lambda: cache.staged_bytes)
        ledger.offer("staged", lambda _: _write_staged(cache))
        ledger.offer("stored", lambda missing: _drop_stored(cache, missing))
        cache.fits = ledger.fits_beside
    return ledger


def lane_size(loaded: Loaded) -> LaneSize:
    """Bytes of one text of a model, as its plan counts them."""
    plan = loaded.plan
    if plan is None:
        return LaneSize(row=loaded.target.facts.kv_bytes_per_token)
    return LaneSize(row=plan.needs.per_token(plan.kv), fixed=plan.needs.lane)


def drop_buffers() -> int:
    """Let MLX give back what it has freed; bytes of that."""
    before = mx.get_cache_memory()
    mx.clear_cache()
    return max(before - mx.get_cache_memory(), 0)


def _write_staged(cache: PrefixCache) -> int:
    """Wait for copies that are being written; bytes of those that were."""
    before = cache.staged_bytes
    if before:
        cache.settle(_WRITE_SECONDS)
    return before - cache.staged_bytes


def _drop_stored(cache: PrefixCache, missing: int) -> int:
    """Give up what was used longest ago; the newest run where nothing else helps."""
    before = cache.nbytes
    wanted = max(before - missing, 0)
    cache.shrink(wanted)
    if cache.nbytes > wanted:
        cache.shrink(0)
    mx.clear_cache()
    return before - cache.nbytes
