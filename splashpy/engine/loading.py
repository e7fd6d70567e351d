# SPDX-License-Identifier: Apache-2.0
"""From a directory to a target and a drafter ready to decode.

Runs on the engine thread. After the weights it measures what a verify pass of several
rows costs on this machine: lookup drafts only what is expected to commit more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from splashpy.drafting.combined import CombinedDrafter
from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.drafter import Drafter
from splashpy.drafting.lookup import (
    DRAFT_TOKENS,
    LOOKUP_PAYS_BELOW,
    MAX_ROWS,
    LookupDrafter,
)
from splashpy.drafting.plain import PlainDrafter
from splashpy.errors import ModelResultError, PairError
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.dflash2_load import UNPACKED_BITS, load_drafter
from splashpy.models.loading import load_target
from splashpy.models.target import MlxLmTarget, Target, check_taps
from splashpy.package.model_directory import ModelDirectory
from splashpy.protocol import DraftState, LoadOptions, LoadProgress

_TIMED_SECONDS = 1.0  # for both widths together; at least one pass of each is timed
_TIMED_PASSES = 5
_SHORTEST_BESIDE_DRAFTER = 4  # tokens: a drafter beats a shorter match


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What to load.

    Attributes:
        directory: config.json and weights of the target.
        config: the parsed config.json.
        context_max: tokens of prompt plus answer.
        options: wishes about drafting and context; ``options.draft`` replaces the
            package's drafter.
        draft: directory of the drafter the package brings; None without one.
    """

    directory: Path
    config: dict[str, Any]
    context_max: int
    options: LoadOptions
    draft: Path | None = None

    @classmethod
    def of(
        cls, directory: ModelDirectory, options: LoadOptions, context_max: int
    ) -> LoadRequest:
        """What to load of a model directory."""
        return cls(
            directory=directory.target,
            config=directory.config,
            context_max=context_max,
            options=options,
            draft=directory.draft,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model ready to decode.

    Attributes:
        target: the model whose words count.
        drafter: who proposes.
        draft: what to tell a person about it.
        draft_bytes: bytes of drafter weights.
    """

    target: Target
    drafter: Drafter
    draft: DraftState
    draft_bytes: int = 0


def load(request: LoadRequest, progress: Callable[[LoadProgress], None]) -> Loaded:
    """Load the target, choose a drafter, warm both up.

    Raises:
        ModelKindError: the directory is not a supported target or drafter.
        PairError: the drafter that was asked for does not fit the target.
        ModelResultError: the weights compute NaN.
    """

    def weights(done: int, total: int) -> None:
        progress(LoadProgress(phase="map", done=done, total=total, unit="bytes"))

    target = load_target(
        request.directory, request.config, request.context_max, weights
    )
    progress(LoadProgress(phase="warmup"))
    check_numbers(target)
    return _with_drafter(target, request)


def check_numbers(target: Target) -> None:
    """One forward of the target must give numbers.

    Raises:
        ModelResultError: it does not.
    """
    ids = mx.arange(4) % target.facts.vocab_size
    logits = target.forward(target.new_state(4), ids, rows=4).logits
    if mx.any(mx.isnan(logits)).item():
        raise ModelResultError(
            "the weights compute NaN on a plain prompt",
            fix=["download the model again; its files may be damaged"],
        )


def verify_cost(target: Target, rows: int) -> float:
    """Time of a verify pass of ``rows`` rows in plain steps.

    The two widths take turns, and the fastest pass of each counts: other work on the
    machine only ever adds time.
    """
    best = {1: float("inf"), rows: float("inf")}
    began = perf_counter()
    for index in range(_TIMED_PASSES + 1):
        for width in best:
            seconds = _pass_seconds(target, width)
            if index:  # the first pass also compiles
                best[width] = min(best[width], seconds)
        if index and perf_counter() - began > _TIMED_SECONDS:
            break
    return best[rows] / best[1]


def _pass_seconds(target: Target, rows: int) -> float:
    ids = mx.arange(rows) % target.facts.vocab_size
    state = target.new_state(rows)
    started = perf_counter()
    mx.eval(target.forward(state, ids, rows=rows).logits)
    return perf_counter() - started


def _with_drafter(target: MlxLmTarget, request: LoadRequest) -> Loaded:
    options = request.options
    if options.no_draft:
        return _loaded(target, PlainDrafter(), DraftState(reason="--no-draft"))
    network, reason = _load_network(target, request)
    shortest = 1 if network is None else _SHORTEST_BESIDE_DRAFTER
    lookup = None if options.lookup is False else _lookup(target, options, shortest)
    if network is None:
        return _without_network(target, lookup, reason)
    drafter = DFlash2Drafter(network, target, block_size=options.block_size)
    reason = check_taps(target, drafter.feature_layers)
    if reason:
        return _without_network(target, lookup, reason)
    both = drafter if lookup is None else CombinedDrafter(lookup, drafter)
    packed = network.config.quantization
    bits = options.draft_bits or (packed.bits if packed else UNPACKED_BITS)
    weights: Any = tree_flatten(network.parameters())
    return _loaded(
        target,
        both,
        DraftState(state="active", bits=bits),
        sum(array.nbytes for _, array in weights),
    )


def _without_network(
    target: Target, lookup: LookupDrafter | None, reason: str
) -> Loaded:
    if lookup is None:
        reason = f"{reason}, and --no-lookup"
        return _loaded(target, PlainDrafter(), DraftState(reason=reason))
    if lookup.cost > LOOKUP_PAYS_BELOW:
        reason += (
            f"; lookup waits for copies: a pass of {DRAFT_TOKENS + 1} rows costs "
            f"{lookup.cost:.1f} plain steps here"
        )
    return _loaded(target, lookup, DraftState(state="lookup", reason=reason))


def _load_network(
    target: MlxLmTarget, request: LoadRequest
) -> tuple[DFlashNetwork | None, str]:
    """The drafter network to use, or None and why there is none."""
    asked = request.options.draft
    directory = request.draft if asked is None else Path(asked)
    if directory is None:
        return None, "the package has no drafter"
    try:
        bits = request.options.draft_bits
        return load_drafter(directory, target.facts, bits=bits), ""
    except PairError as error:
        if asked is not None:
            raise
        return None, f"{error.message}: {error.why}"


def _lookup(target: Target, options: LoadOptions, shortest: int) -> LookupDrafter:
    return LookupDrafter(
        shortest=shortest,
        # A lookup that was asked for drafts from every match.
        cost=1.0 if options.lookup else verify_cost(target, DRAFT_TOKENS + 1),
        block_size=options.block_size or MAX_ROWS,
    )


def _loaded(
    target: Target, drafter: Drafter, draft: DraftState, draft_bytes: int = 0
) -> Loaded:
    return Loaded(target=target, drafter=drafter, draft=draft, draft_bytes=draft_bytes)
