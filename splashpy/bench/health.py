# SPDX-License-Identifier: Apache-2.0
"""Whether this machine computes, and what a loaded model does on it."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from time import perf_counter
from typing import Any

import mlx.core as mx

from splashpy.bench.measuring import measure
from splashpy.bench.session import Session
from splashpy.drafting.combined import CombinedDrafter
from splashpy.drafting.pace import Costs
from splashpy.engine.memory import Plan
from splashpy.engine.timing import Timed
from splashpy.kernels import metal
from splashpy.package.model_directory import ModelDirectory
from splashpy.protocol import DraftState, Ledger, LoadOptions, LoadProgress
from splashpy.units import format_bytes

TOKENS = 16
PROMPT = "Count from one to twenty in words."
_SIZE = 64  # of the square matrices that are multiplied
_ASK_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A model that was loaded and asked once.

    Attributes:
        load_seconds: from nothing to ready.
        draft: who drafts.
        costs: of cycles here, in plain steps; None where nothing is drafted.
        timed: where they are from.
        plan: of the memory; None where nobody knows what there is.
        tokens: of the answer.
        first_seconds: from the question to the first of them.
        decode_seconds: from the first to the last.
        tau: tokens a pass produced, the target's own counted.
        peak_bytes: most memory MLX held while answering.
        ledger: who has claims on the memory.
        wired: which weights stay in physical memory, where that was asked for.
    """

    load_seconds: float
    draft: DraftState
    costs: Costs | None
    timed: Timed
    plan: Plan | None
    tokens: int
    first_seconds: float
    decode_seconds: float
    tau: float
    peak_bytes: int = field(default=0)
    ledger: Ledger = field(default_factory=Ledger)
    wired: str = ""


def try_out(
    directory: ModelDirectory,
    options: LoadOptions,
    progress: Callable[[LoadProgress], None] = lambda _: None,
) -> Trial:
    """Load a model, time its cycles again, and let it write a few tokens.

    Args:
        directory: of the model.
        options: wishes about the engine.
        progress: of the loading.

    Raises:
        SplashError: it cannot be loaded, or computes NaN.
    """
    began = perf_counter()
    session = Session.open(directory, options, progress, paced=True, time_again=True)
    seconds = perf_counter() - began
    drafter = session.drafter
    ids = session.prompt_ids(PROMPT)
    found = measure(session, ids, drafter, max_tokens=TOKENS)
    return Trial(
        load_seconds=seconds,
        draft=session.loaded.draft,
        costs=drafter.costs.model if isinstance(drafter, CombinedDrafter) else None,
        timed=session.loaded.timed,
        plan=session.loaded.plan,
        tokens=len(found.token_ids),
        first_seconds=found.prefill_seconds,
        decode_seconds=found.decode_seconds,
        tau=found.counts.tau,
        peak_bytes=found.peak_bytes,
        ledger=session.ledger.report(),
        wired=_wired_words(session),
    )


def _wired_words(session: Session) -> str:
    if session.wired is None:
        return ""
    return session.wired.reason or format_bytes(session.wired.nbytes)


def has_metal() -> bool:
    """Whether MLX finds a Metal GPU."""
    return metal.use_metal()


def computes() -> tuple[bool, str]:
    """Whether MLX multiplies two matrices right, and which version does."""
    numbers = mx.arange(_SIZE * _SIZE, dtype=mx.float32).reshape(_SIZE, _SIZE) / 7
    try:
        product = numbers @ mx.eye(_SIZE)
        sound: Any = mx.allclose(product, numbers, rtol=1e-3).item()
    except RuntimeError as error:
        return False, f"{version('mlx')}: {error}"
    words = f"{version('mlx')}, mlx-lm {version('mlx-lm')}"
    return bool(sound), words if sound else f"{words}: a product of matrices is wrong"


def is_translated() -> bool:
    """Whether this process runs under Rosetta."""
    words = ("sysctl", "-n", "sysctl.proc_translated")
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == "1"


def reaches(url: str, seconds: float) -> str:
    """Why an address does not answer; empty where it does, whatever it says."""
    request = urllib.request.Request(url, method="HEAD")
    if not url.startswith(("http://", "https://")):
        return "not an address"
    try:
        with urllib.request.urlopen(request, timeout=seconds):
            return ""
    except urllib.error.HTTPError:
        return ""
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", "") or error
        return getattr(reason, "strerror", "") or str(reason)
