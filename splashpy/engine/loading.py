# SPDX-License-Identifier: Apache-2.0
"""From a directory to a target and a drafter ready to decode.

Runs on the engine thread. After the weights it measures what drafting costs on this
machine, so that tokens are drafted only where they are expected to pay.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mlx.core as mx

from splashpy import blas
from splashpy.drafting.combined import CombinedDrafter
from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.drafter import Drafter
from splashpy.drafting.lookup import (
    DRAFT_TOKENS,
    LOOKUP_PAYS_BELOW,
    MAX_ROWS,
    LookupDrafter,
)
from splashpy.drafting.pace import Costs
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine.calibration import Calibration
from splashpy.engine.finer_costs import Reach
from splashpy.engine.lane_claim import COPIES
from splashpy.engine.memory import Needs, Plan, budget_bytes, plan_memory
from splashpy.engine.row_kernels import choose_kernels
from splashpy.engine.timing import Timed, time_cycles
from splashpy.errors import ModelResultError, PairError, SplashError, UsageError
from splashpy.kernels import metal, verdicts
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.dflash2_load import UNPACKED_BITS, drafter_sizes, load_drafter
from splashpy.models.loading import load_target
from splashpy.models.quantized_lane import GROUP
from splashpy.models.target import MlxLmTarget, Target, check_taps
from splashpy.package.identity import files_identity
from splashpy.package.model_directory import ModelDirectory
from splashpy.protocol import DraftState, LoadOptions, LoadProgress
from splashpy.version import __version__


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
        memory_bytes: what weights and states may take; 0 where it is not known.
        paced: draft where it is expected to pay; False drafts always, and whole
            blocks.
        costs_file: keeps what cycles cost, for the next start; None keeps nothing.
        time_again: time cycles even where that is kept.
    """

    directory: Path
    config: dict[str, Any]
    context_max: int
    options: LoadOptions
    draft: Path | None = None
    memory_bytes: int = 0
    paced: bool = True
    costs_file: Path | None = None
    time_again: bool = False

    @classmethod
    def of(
        cls,
        directory: ModelDirectory,
        options: LoadOptions,
        context_max: int,
        *,
        memory_bytes: int = 0,
        paced: bool = True,
    ) -> LoadRequest:
        """What to load of a model directory."""
        return cls(
            directory=directory.target,
            config=directory.config,
            context_max=context_max,
            options=options,
            draft=directory.draft,
            memory_bytes=memory_bytes,
            paced=paced,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model ready to decode.

    Attributes:
        target: the model whose words count.
        drafter: who proposes.
        draft: what to tell a person about it.
        draft_bytes: bytes of drafter weights.
        plan: of the memory; None where nobody knows what there is.
        timed: what cycles cost on this machine.
        lanes: requests that may run at a time.
    """

    target: Target
    drafter: Drafter
    draft: DraftState
    draft_bytes: int = 0
    plan: Plan | None = None
    timed: Timed = field(default_factory=Timed)
    lanes: int = 1

    @property
    def costs(self) -> Costs:
        """Of cycles on this machine."""
        return self.timed.costs

    @property
    def block_size(self) -> int:
        """Rows of the drafter's block; of lookup's where that is all there is."""
        drafter = self.drafter
        if isinstance(drafter, CombinedDrafter):
            drafter = drafter.drafter
        return drafter.block_size


def load(request: LoadRequest, progress: Callable[[LoadProgress], None]) -> Loaded:
    """Load the target, choose a drafter, warm both up.

    Raises:
        ModelKindError: the directory is not a supported target or drafter.
        PairError: the drafter that was asked for does not fit the target.
        CapacityError: it does not fit into memory; no weight has been read then.
        ModelResultError: the weights compute NaN.
        UsageError: keys and values of this model cannot be kept as was asked.
    """

    def weights(done: int, total: int) -> None:
        progress(LoadProgress(phase="map", done=done, total=total, unit="bytes"))

    plans: list[Plan] = []
    target = load_target(
        request.directory,
        request.config,
        request.context_max,
        weights,
        lambda target: plans.extend(_planned(target, request)),
    )
    plan = plans[0] if plans else None
    if plan:
        target.facts = replace(target.facts, context_max=plan.context)
    progress(LoadProgress(phase="warmup"))
    check_numbers(target)
    return replace(_with_drafter(target, request, plan), plan=plan)


def _lanes(request: LoadRequest, plan: Plan | None) -> int:
    lanes = request.options.max_concurrent
    return min(lanes, plan.lanes) if plan else lanes


def _planned(target: MlxLmTarget, request: LoadRequest) -> list[Plan]:
    """What fits, before a weight is read; nothing where nobody knows what there is.

    Raises:
        CapacityError: too little fits.
    """
    options = request.options
    budget = budget_bytes(request.memory_bytes, options.max_memory)
    if not budget:
        return []
    try:
        state = target.state_sizes()
    except (AttributeError, TypeError):
        return []  # a model that cannot run; loading says so
    draft, draft_row = _draft_sizes(target, request)
    needs = Needs(
        target=target.facts.weight_bytes,
        draft=draft,
        row=state.row,
        row_q8=state.row_q8,
        draft_row=draft_row,
        lane=COPIES * state.fixed,
        context_max=request.context_max,
    )
    asked = options.max_context is not None
    return [plan_memory(needs, budget, asked=asked, kv=options.kv)]


def _draft_sizes(target: MlxLmTarget, request: LoadRequest) -> tuple[int, int]:
    directory = _draft_directory(request)
    if directory is None or request.options.no_draft:
        return 0, 0
    try:
        return drafter_sizes(directory, target.facts, request.options.draft_bits)
    except SplashError:
        return 0, 0  # loading says what is wrong with it, or does without


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


def choose_kv(
    target: MlxLmTarget, request: LoadRequest, plan: Plan | None = None
) -> None:
    """Let the target keep keys and values as was asked, or as was planned.

    Raises:
        UsageError: 8 bits were asked for, and no layer's rows can be kept so.
    """
    wish = request.options.kv
    if wish == "auto":
        wish = plan.kv if plan else "bf16"
    if wish == "bf16" or target.round_rows():
        return
    raise UsageError(
        "--kv q8: keys and values of this model cannot be kept in 8 bits",
        why=f"no layer of full attention has heads of a multiple of {GROUP} channels",
        fix=["--kv bf16, or leave it out"],
    )


def _with_drafter(
    target: MlxLmTarget, request: LoadRequest, plan: Plan | None
) -> Loaded:
    options = request.options
    lanes = _lanes(request, plan)
    if options.no_draft:
        choose_kv(target, request, plan)
        _choose_kernels(target, None, options)
        loaded = _loaded(target, PlainDrafter(), DraftState(reason="--no-draft"))
        return replace(loaded, lanes=lanes)
    drafter, reason = _load_drafter(target, request)
    choose_kv(target, request, plan)  # taps are checked on the target's own numbers
    timed = _timed(target, drafter, request, lanes)
    lookup = _lookup(options, timed.costs)
    if drafter is None:
        loaded = _without_network(target, lookup, reason)
        return replace(loaded, timed=timed, lanes=lanes)
    packed = drafter.config.quantization
    bits = options.draft_bits or (packed.bits if packed else UNPACKED_BITS)
    loaded = _loaded(
        target,
        CombinedDrafter(lookup, drafter, timed.costs),
        DraftState(state="active", bits=bits),
        drafter.nbytes,
    )
    return replace(loaded, timed=timed, lanes=lanes)


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


def _timed(
    target: Target, drafter: DFlash2Drafter | None, request: LoadRequest, lanes: int
) -> Timed:
    options = request.options
    if not request.paced or (drafter is None and options.lookup is not None):
        return Timed()
    block = drafter.block_size if drafter is not None else 0
    rows = [DRAFT_TOKENS + 1, *((2, block) if block else ())]
    reach = Reach(
        block=block,
        lookup=0 if options.lookup is False else options.block_size or MAX_ROWS,
        lanes=lanes,
        context=target.facts.context_max,
    )
    kept = _calibration(target, drafter, request)
    return time_cycles(target, drafter, kept, rows, reach)


def _calibration(
    target: Target, drafter: DFlash2Drafter | None, request: LoadRequest
) -> Calibration:
    """Where the costs of this pair on this machine are kept."""
    if request.costs_file is None:
        return Calibration(None, {})
    library, directory = blas.prepare(), _draft_directory(request)
    facts: dict[str, Any] = {
        "machine": verdicts.machine(),
        "cores": _cores(),
        "blas": [str(library), library.threads],
        "kernels": metal.switch() if request.options.kernels else "off",
        "splashpy": __version__,
        "target": files_identity(request.directory),
        "kv": target.facts.kv,
    }
    if drafter is not None and directory is not None:
        facts |= {
            "draft": files_identity(directory),
            "draft_bits": request.options.draft_bits,
            "block_size": drafter.block_size,
        }
    return Calibration(request.costs_file, facts, again=request.time_again)


def _cores() -> int:
    """Processor cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 0


def _load_drafter(
    target: MlxLmTarget, request: LoadRequest
) -> tuple[DFlash2Drafter | None, str]:
    """The drafter to use, its taps installed; or None and why there is none."""
    options = request.options
    directory = _draft_directory(request)
    if directory is None:
        _choose_kernels(target, None, options)
        return None, "the package has no drafter"
    try:
        network = load_drafter(directory, target.facts, bits=options.draft_bits)
    except PairError as error:
        if options.draft is not None:
            raise
        _choose_kernels(target, None, options)
        return None, f"{error.message}: {error.why}"
    _choose_kernels(target, network, options)
    drafter = DFlash2Drafter(network, target, block_size=options.block_size)
    reason = check_taps(target, drafter.feature_layers)
    return (None, reason) if reason else (drafter, "")


def _choose_kernels(
    target: MlxLmTarget, network: DFlashNetwork | None, options: LoadOptions
) -> None:
    if options.kernels:
        choose_kernels(target, network)


def _draft_directory(request: LoadRequest) -> Path | None:
    chosen = request.options.draft
    return request.draft if chosen is None else Path(chosen)


def _lookup(options: LoadOptions, costs: Costs) -> LookupDrafter | None:
    if options.lookup is False:
        return None
    width = options.block_size or MAX_ROWS
    if options.lookup:  # one that was asked for drafts from every match
        return LookupDrafter(block_size=width)
    cost = costs.verify(DRAFT_TOKENS + 1)
    return LookupDrafter(cost=cost, block_size=width)


def _loaded(
    target: Target, drafter: Drafter, draft: DraftState, draft_bytes: int = 0
) -> Loaded:
    return Loaded(target=target, drafter=drafter, draft=draft, draft_bytes=draft_bytes)
