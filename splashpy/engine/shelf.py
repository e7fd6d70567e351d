# SPDX-License-Identifier: Apache-2.0
"""The prefix cache of a loaded model: its identity, its budget, its directory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx

from splashpy import blas
from splashpy.cache.disk.room import default_quota
from splashpy.cache.disk.tier import DiskTier, DraftSide
from splashpy.cache.identity import Namespace, draft_namespace
from splashpy.cache.prefix import PrefixCache
from splashpy.drafting.drafter import KeepsContext
from splashpy.engine.cache_budget import cache_budget
from splashpy.engine.loading import Loaded, LoadRequest
from splashpy.package.identity import files_identity

Clock = Callable[[], float]


def wall_clock() -> float:
    """Seconds since 1970."""
    return datetime.now(UTC).timestamp()


def open_cache(
    request: LoadRequest, loaded: Loaded, clock: Clock = wall_clock
) -> PrefixCache | None:
    """The cache of a model; None where none was wished for.

    Args:
        request: what was loaded.
        loaded: the model.
        clock: of the records on disk.
    """
    options = request.options
    if not options.prefix_cache:
        return None
    name = namespace(request, loaded)
    tier = _open_tier(request, loaded, name, clock)
    return PrefixCache(
        cache_budget(loaded.plan) if options.cache_ram is None else options.cache_ram,
        root=name.digest,
        disk=tier,
        new_state=loaded.target.new_state,
    )


def namespace(request: LoadRequest, loaded: Loaded) -> Namespace:
    """What the rows of this model on this machine are identified by."""
    facts = loaded.target.facts
    cpu = mx.default_device() == mx.cpu
    info = mx.device_info()
    device = str(info.get("architecture", info.get("device_name", "")))
    return Namespace(
        weights=files_identity(request.directory),
        model_type=facts.model_type,
        kv=facts.kv,
        dtype="float32" if cpu else "as stored",
        device=f"cpu {blas.prepare()}" if cpu else device,
        mlx=".".join(version("mlx").split(".")[:2]),
        mlx_lm=version("mlx-lm"),
    )


def _open_tier(
    request: LoadRequest, loaded: Loaded, name: Namespace, clock: Clock
) -> DiskTier | None:
    options = request.options
    if options.cache_dir is None:
        return None
    root = Path(options.cache_dir)
    quota = default_quota(root) if options.cache_disk is None else options.cache_disk
    if not quota:
        return None
    return DiskTier.open(
        root,
        name.digest,
        name.to_json(),
        quota=quota,
        clock=clock,
        draft=_draft_side(request, loaded, name),
    )


def _draft_side(
    request: LoadRequest, loaded: Loaded, name: Namespace
) -> DraftSide | None:
    options, drafter = request.options, loaded.drafter
    directory = request.draft if options.draft is None else Path(options.draft)
    if directory is None or not isinstance(drafter, KeepsContext):
        return None
    identity = f"{files_identity(directory)} {loaded.draft.bits}"
    return DraftSide(draft_namespace(name.digest, identity), drafter.new_context)
