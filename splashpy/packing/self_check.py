# SPDX-License-Identifier: Apache-2.0
"""Does a package that was just packed work? Decode a prompt with drafts and without.

The prompt is fixed and decoding greedy. The first tokens go into the manifest as its
smoke test; how many tokens a cycle committed is the acceptance length, which counts the
target's own token.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
from tokenizers import Tokenizer

from splashpy.drafting.drafter import Drafter
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine.generation import generate
from splashpy.engine.loading import Loaded, LoadRequest, load
from splashpy.engine.request import Failed, GenerationRequest, TokensCommitted
from splashpy.errors import ModelKindError
from splashpy.package.manifest import Check
from splashpy.package.model_directory import ModelDirectory
from splashpy.package.progress import Cancelled, CancelledError, Progress
from splashpy.protocol import LoadOptions
from splashpy.units import format_bytes
from splashpy.verification.sampling import SamplingParams

PROMPT = "The three primary colours are"
TOKENS = 64

_RECORDED_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheck:
    """What was found.

    Attributes:
        check: for the manifest.
        cycles: decoding with drafts took; 0 without a drafter.
        tokens: that were decoded.
        first_difference: token at which the two ways differ; None when they agree.
    """

    check: Check
    cycles: int = 0
    tokens: int = 0
    first_difference: int | None = None

    @property
    def acceptance_length(self) -> float | None:
        """Tokens a cycle committed, the target's own included; None without drafts."""
        return round(self.tokens / self.cycles, 3) if self.cycles else None


def self_check(package: Path, progress: Progress, cancelled: Cancelled) -> SelfCheck:
    """Load a package and decode.

    Args:
        package: complete, splashpy.json included.
        progress: phases of loading.
        cancelled: polled between cycles.

    Raises:
        SplashError: the package does not load or computes no numbers.
        CancelledError: ``cancelled`` said yes.
    """
    directory = ModelDirectory.open(package)
    tokenizer = read_tokenizer(directory.tokenizer)
    prompt = tuple(tokenizer.encode(PROMPT).ids)
    if not prompt:
        raise ModelKindError(f"{package}: the tokenizer makes nothing of a text")
    options = LoadOptions(lookup=False)
    context = min(directory.context_max, len(prompt) + 2 * TOKENS)
    loaded = load(LoadRequest.of(directory, options, context, paced=False), progress)
    plain, _ = _decode(prompt, loaded, PlainDrafter(), cancelled)
    check = Check(
        prompt_token_ids=prompt,
        token_ids=plain[:_RECORDED_TOKENS],
        device="cpu" if mx.default_device() == mx.cpu else "metal",
    )
    if loaded.draft.state != "active":
        return SelfCheck(check=check, tokens=len(plain))
    drafted, cycles = _decode(prompt, loaded, loaded.drafter, cancelled)
    pairs = enumerate(zip(plain, drafted, strict=False))
    return SelfCheck(
        check=check,
        cycles=cycles,
        tokens=len(drafted),
        first_difference=next((i for i, (a, b) in pairs if a != b), None),
    )


def read_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer of a directory, as its library has it.

    Raises:
        ModelKindError: it cannot be read.
    """
    path = directory / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the library raises bare Exception
        raise ModelKindError(f"{path}: no tokenizer", why=str(error)) from None


def too_large(num_bytes: int, *, bits: float) -> str:
    """Why weights cannot be loaded on this computer; empty when they can.

    Args:
        num_bytes: of the files.
        bits: of a weight in them, about; on a CPU every weight becomes float32.
    """
    factor = 32 / bits if mx.default_device() == mx.cpu else 1.0
    needed = num_bytes * factor
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed <= memory:
        return ""
    return (
        f"the weights need {format_bytes(round(needed))} of memory, this computer has "
        f"{format_bytes(memory)}"
    )


def _decode(
    prompt: tuple[int, ...], loaded: Loaded, drafter: Drafter, cancelled: Cancelled
) -> tuple[tuple[int, ...], int]:
    """Tokens, and the cycles after the first token they took."""
    request = GenerationRequest(
        id="self-check",
        token_ids=prompt,
        sampling=SamplingParams(),
        seed=0,
        max_new_tokens=TOKENS,
    )
    tokens: list[int] = []
    cycles = 0
    for event in generate(request, loaded.target, drafter, None, cancelled=cancelled):
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, TokensCommitted):
            tokens += event.token_ids
            cycles += 1
    if cancelled():
        raise CancelledError
    return tuple(tokens), cycles
