# SPDX-License-Identifier: Apache-2.0
"""Five programs that decode greedily, behind one door.

Each gets the same target weights (on a CPU in float32, as splashpy computes there), the
same drafter weights, and prompts as token ids, and runs in the setting its own
documentation recommends. A program that is missing raises ``ImportError``.

Every program tells the moments at which tokens arrived; rates are computed from those
in one place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from splashpy import blas

blas.prepare()

import mlx.core as mx  # noqa: E402
from mlx_lm.generate import stream_generate  # noqa: E402
from mlx_lm.tokenizer_utils import load as load_tokenizer  # noqa: E402

from splashpy.bench.session import Session  # noqa: E402
from splashpy.engine.request import TokensCommitted  # noqa: E402
from splashpy.models.loading import load_target, to_float32  # noqa: E402
from splashpy.package.model_directory import ModelDirectory  # noqa: E402
from splashpy.protocol import LoadOptions  # noqa: E402

Arrivals = Iterator[tuple[list[int], float]]
"""Tokens, and when they arrived."""

Decode = Callable[[list[int], int], Arrivals]
"""Continues a prompt of token ids by at most so many tokens."""


@dataclass(slots=True)
class Pair:
    """What is decoded with.

    Attributes:
        model: the directory of the target or package.
        draft: the directory of the drafter.
    """

    model: ModelDirectory
    draft: Path
    _session: Session | None = None

    @classmethod
    def open(cls, model: str, draft: str | None) -> Pair:
        """The pair in two directories; None takes the package's own drafter."""
        directory = ModelDirectory.open(Path(model))
        chosen = Path(draft) if draft else directory.draft
        if chosen is None:
            sys.exit(f"error: {model} has no drafter\nfix:   --draft DIR")
        return cls(directory, chosen)

    def session(self) -> Session:
        """Splashpy as everybody runs it, loaded once."""
        if self._session is None:
            options = LoadOptions(draft=str(self.draft))
            self._session = Session.open(self.model, options, paced=True)
        return self._session

    def target(self) -> Any:
        """mlx-lm's module with the target's weights, as splashpy loads them."""
        model = self.model
        loaded = load_target(
            model.target, model.config, model.context_max, lambda *_: None
        )
        return loaded._model

    def tokenizer(self) -> Any:
        """mlx-lm's tokenizer, which ends texts where splashpy does."""
        tokenizer = load_tokenizer(self.model.tokenizer)
        session_ids = self.model.config.get("eos_token_id")
        if isinstance(session_ids, int):
            session_ids = [session_ids]
        tokenizer.eos_token_ids = set(session_ids or tokenizer.eos_token_ids)
        return tokenizer


def splashpy(pair: Pair) -> Decode:
    """Default settings: drafts where they pay."""
    session = pair.session()

    def decode(ids: list[int], tokens: int) -> Arrivals:
        for event in session.events(
            tuple(ids), session.drafter, max_tokens=tokens, cancelled=lambda: False
        ):
            if isinstance(event, TokensCommitted):
                yield list(event.token_ids), perf_counter()

    return decode


def mlx_lm(pair: Pair) -> Decode:
    """Plain decoding with ``stream_generate``."""
    model, tokenizer = pair.target(), pair.tokenizer()

    def decode(ids: list[int], tokens: int) -> Arrivals:
        for answer in stream_generate(
            model, tokenizer, mx.array(ids), max_tokens=tokens
        ):
            yield [int(answer.token)], perf_counter()

    return decode


def dflash(pair: Pair) -> Decode:
    """PyPI dflash 0.1.0 with ``stream_generate`` and whole blocks, its default."""
    import_module("dflash.model_mlx")
    sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))
    original = import_module("original")
    model, tokenizer = pair.target(), pair.tokenizer()
    drafter = original.load_drafter(pair.draft)
    if mx.default_device() == mx.cpu:
        drafter.set_dtype(mx.float32)

    def decode(ids: list[int], tokens: int) -> Arrivals:
        for answer in original.package.stream_generate(
            model, drafter, tokenizer, mx.array(ids), max_tokens=tokens
        ):
            if answer.tokens:
                yield list(answer.tokens), perf_counter()

    return decode


def dflash_mlx(pair: Pair) -> Decode:
    """dflash-mlx 0.1.8 with the settings its ``dflash generate`` uses."""
    runtime = import_module("dflash_mlx.runtime")
    bundle = import_module("dflash_mlx.runtime.bundle")
    events = import_module("dflash_mlx.engine.events")
    context = import_module("dflash_mlx.runtime.context")
    limits = import_module("dflash_mlx.metal_limits")
    if mx.default_device() != mx.cpu:
        limits.apply_metal_limits()
    setting = context.build_offline_runtime_context()
    with _as_mlx_lm_wants_it(pair) as directory:
        loaded = bundle.load_runtime_bundle(
            model_ref=directory,
            draft_ref=str(pair.draft),
            verify_config=setting.verify,
        )
    _in_float32_on_a_cpu(loaded.target_model)
    stops = sorted(pair.tokenizer().eos_token_ids)

    def decode(ids: list[int], tokens: int) -> Arrivals:
        for event in runtime.stream_dflash_generate(
            target_model=loaded.target_model,
            target_ops=loaded.target_ops,
            tokenizer=loaded.tokenizer,
            draft_model=loaded.draft_model,
            draft_backend=loaded.draft_backend,
            prompt_tokens_override=ids,
            max_new_tokens=tokens,
            stop_token_ids=stops,
            runtime_context=setting,
        ):
            if isinstance(event, events.TokenEvent):
                yield [int(event.token_id)], perf_counter()

    return decode


def mlx_dspark(pair: Pair) -> Decode:
    """mlx-dspark 0.20.3 with ``dflash_generate`` and its measured draft length."""
    package = import_module("mlx_dspark")
    with _as_mlx_lm_wants_it(pair) as directory:
        target, tokenizer, drafter, _ = package.load_dflash_pair(
            directory, drafter=str(pair.draft)
        )
    _in_float32_on_a_cpu(target.model)

    def decode(ids: list[int], tokens: int) -> Arrivals:
        found = package.dflash_generate(
            target, tokenizer, drafter, prompt_ids=ids, max_new_tokens=tokens
        )
        written, started = list(found.token_ids), perf_counter()
        yield written[:1], started
        yield written[1:], started + found.decode_seconds

    return decode


PROGRAMS: dict[str, Callable[[Pair], Decode]] = {
    "splashpy": splashpy,
    "dflash": dflash,
    "mlx_lm": mlx_lm,
    "mlx_dspark": mlx_dspark,
    "dflash_mlx": dflash_mlx,
}


class _as_mlx_lm_wants_it(TemporaryDirectory):  # noqa: N801 - reads as a phrase
    """A directory with the files of target and tokenizer together."""

    def __init__(self, pair: Pair):
        super().__init__()
        for folder in (pair.model.tokenizer, pair.model.target):
            for file in folder.iterdir():
                link = Path(self.name) / file.name
                if file.is_file() and not link.exists():
                    link.symlink_to(file.absolute())


def _in_float32_on_a_cpu(model: Any) -> None:
    """As splashpy computes there, where packed weights are slow."""
    if mx.default_device() == mx.cpu:
        to_float32(model)
        mx.eval(model.parameters())
