# SPDX-License-Identifier: Apache-2.0
"""A target to be packed: what its files will hold, before a weight is read.

mlx-lm maps the checkpoint to the names and layouts its models have; which of its
modules are packed, and how, is decided here. Weights that are packed already are taken
as they are, in whatever mode: quantizing twice would lose more than it saves.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import ArraysCache, make_prompt_cache
from mlx_lm.utils import load_model
from safetensors.numpy import save

from splashpy.errors import ModelKindError, UsageError
from splashpy.models.arrays import entry_of, from_mlx
from splashpy.models.loading import check_model_type
from splashpy.models.rotary import rotary_keys
from splashpy.package.model_directory import ModelDirectory, tokenizer_eos
from splashpy.package.splash import decay
from splashpy.package.splash.layout import target_files
from splashpy.package.splash.package import SplashPackage
from splashpy.package.splash.reading import decays as stored_decays
from splashpy.package.splash.tensors import SplashTensors
from splashpy.package.weights.tensor import Tensor
from splashpy.packing.quantize_on_demand import (
    Packing,
    QuantizeOnDemand,
    packed_entries,
)
from splashpy.packing.shards import Shards

SPLASH_EXTRA = "splash-extra.safetensors"
"""Decays of an imported Splash package, in ``target/``; mlx-lm does not read it."""

USUAL = Packing(bits=4, group_size=64)
"""How a target is packed when nobody says otherwise."""

_FAILURES = (
    *(ArithmeticError, AttributeError, LookupError),
    *(RuntimeError, TypeError, ValueError),
)
"""What a configuration of sizes that do not go together ends in within mlx-lm."""

TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)


@dataclass(frozen=True, slots=True)
class PackingWish:
    """How a person wants a target packed.

    Attributes:
        bits, group_size: of all matrices; None leaves it to ``USUAL``.
        overrides: (pattern of module names, packing or None for no packing); the last
            one that matches counts.
    """

    bits: int | None = None
    group_size: int | None = None
    overrides: tuple[tuple[str, Packing | None], ...] = ()

    @property
    def given(self) -> bool:
        """Whether the person wished anything."""
        return bool(self.bits or self.group_size or self.overrides)

    @property
    def everywhere(self) -> Packing:
        """Of a module no pattern names."""
        return Packing(self.bits or USUAL.bits, self.group_size or USUAL.group_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTarget:
    """A target as it will be written.

    Attributes:
        config: config.json.
        shards: the weights.
        tokenizer: file name to content.
        eos_token_ids: tokens that end an answer.
        special: other named ids.
        cache_kinds: what each layer remembers, ``kv`` or ``gdn``.
        others: further files of ``target/``.
        changed: weights are quantized here.
    """

    config: dict[str, Any]
    shards: Shards
    tokenizer: Mapping[str, bytes]
    eos_token_ids: tuple[int, ...]
    special: Mapping[str, int]
    cache_kinds: tuple[str, ...]
    others: Mapping[str, bytes] = field(default_factory=dict)
    changed: bool


def plan_checkpoint(directory: ModelDirectory, wish: PackingWish) -> PlannedTarget:
    """Plan a model directory that mlx-lm loads.

    Raises:
        ModelKindError: mlx-lm does not load it, or another tool has packed it.
        UsageError: it is packed already, and another packing was wished.
    """
    config = directory.config | rotary_keys(directory.config)
    model = _load(directory.target, config)
    kinds = cache_kinds(model)
    matrices = _matrices(model)
    arrays: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    if "quantization" in config:
        refuse_again(directory.path, config["quantization"], wish)
        chosen: dict[str, Packing] = {}
    else:
        chosen = choose(matrices, wish)
        config["quantization"] = quantization_object(chosen, wish.everywhere)
    del model  # the arrays shall vanish one by one as they are written
    return PlannedTarget(
        config=config,
        shards=_shards(arrays, chosen),
        tokenizer=dict(tokenizer_contents(directory.tokenizer)),
        eos_token_ids=directory.eos_token_ids(),
        special=_special(config),
        cache_kinds=kinds,
        others=_splash_extra(directory.target),
        changed=bool(chosen),
    )


def cache_kinds(model: nn.Module) -> tuple[str, ...]:
    """What each layer remembers: ``kv`` keys and values, ``gdn`` a recurrent state."""
    return tuple(
        "gdn" if isinstance(cache, ArraysCache) else "kv"
        for cache in make_prompt_cache(model)
    )


def quantization_object(
    packings: Mapping[str, Packing], usual: Packing
) -> dict[str, Any]:
    """The ``quantization`` of config.json: the usual packing, and what differs."""
    return {
        "group_size": usual.group_size,
        "bits": usual.bits,
        "mode": "affine",
        **{
            module: {"group_size": packing.group_size, "bits": packing.bits}
            for module, packing in sorted(packings.items())
            if packing != usual
        },
    }


def tokenizer_contents(directory: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of the tokenizer's files in a directory."""
    for name in TOKENIZER_FILES:
        path = directory / name
        if path.is_file():
            yield name, path.read_bytes()


def plan_splash(package: SplashPackage, wish: PackingWish) -> PlannedTarget:
    """Plan the target of a Splash package.

    The decays go into a file of their own beside the weights: computing them from
    ``A_log`` again would change the last bit of some.

    Raises:
        UsageError: another packing was wished.
        IntegrityError: a decay is no decay.
    """
    row, config = package.manifest.row, package.target_config()
    config |= rotary_keys(config)
    refuse_again(package.path, config["quantization"], wish)
    tensors = SplashTensors(package.path, target_files(row))
    decays = stored_decays(package)
    logarithms = {
        f"{name.rpartition('.')[0]}.A_log": decay.to_a_log(tensor, name)
        for name, tensor in decays.items()
    }
    entries = {name: e for name, e in tensors.entries.items() if name not in decays}
    entries |= {name: (t.dtype, t.shape) for name, t in logarithms.items()}
    kept = {_extra_name(name): tensor.data for name, tensor in decays.items()}
    directory = package.path / "tokenizer"
    return PlannedTarget(
        config=config,
        shards=Shards(entries, lambda name: logarithms.get(name) or tensors[name]),
        tokenizer=dict(tokenizer_contents(directory)),
        eos_token_ids=tuple(
            sorted({*config["eos_token_id"], *tokenizer_eos(directory)})
        ),
        special=_special(config),
        cache_kinds=tuple(
            "kv" if row.target.attends(layer) else "gdn"
            for layer in range(row.target.num_layers)
        ),
        others={SPLASH_EXTRA: save(kept)},
        changed=False,
    )


def _extra_name(name: str) -> str:
    """``splash.layers.N.decay`` for the decay of layer N."""
    layer = name.partition(".layers.")[2].partition(".")[0]
    return f"splash.layers.{layer}.decay"


class _GivenOnce(Mapping[str, Tensor]):
    """Arrays as tensors; each is computed when asked for, and let go."""

    def __init__(self, arrays: dict[str, mx.array]):
        self._arrays = arrays

    def __getitem__(self, name: str) -> Tensor:
        return from_mlx(self._arrays.pop(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


def _shards(arrays: dict[str, mx.array], chosen: Mapping[str, Packing]) -> Shards:
    entries = {name: entry_of(array) for name, array in arrays.items()}
    give = QuantizeOnDemand(_GivenOnce(arrays), chosen)
    return Shards(packed_entries(entries, chosen), give)


def _load(directory: Path, config: Mapping[str, Any]) -> nn.Module:
    check_model_type(directory.name, str(config.get("model_type", "")))
    foreign = config.get("quantization_config")
    if "quantization" not in config and foreign:
        method = foreign.get("quant_method") if isinstance(foreign, dict) else foreign
        raise ModelKindError(
            f"{directory}: packed by another tool ({method})",
            why="splashpy packs checkpoints of bfloat16, float16 or float32",
        )
    try:
        return load_model(directory, lazy=True, model_config=dict(config))[0]
    except _FAILURES as error:
        raise ModelKindError(
            f"{directory}: mlx-lm does not load this model", why=str(error)
        ) from None


Wanted = bool | dict[str, Any]
"""What a model's own class says of a module: pack it, leave it, or how to pack it."""


def _matrices(model: nn.Module) -> dict[str, tuple[int, Wanted]]:
    """Modules that can be packed: length of their rows, and what the class wants."""
    wants = getattr(model, "quant_predicate", None) or (lambda *_: True)
    return {
        path: (module.weight.shape[-1], wants(path, module))
        for path, module in model.named_modules()
        if hasattr(module, "to_quantized")
    }


def choose(
    matrices: Mapping[str, tuple[int, Wanted]], wish: PackingWish
) -> dict[str, Packing]:
    """How each module is packed; those whose rows do not divide stay as they are.

    Args:
        matrices: module to length of its rows, and what the model's class wants.
        wish: what the person wants.

    Raises:
        UsageError: a pattern matches no module.
    """
    chosen: dict[str, Packing] = {}
    used: set[str] = set()
    for module, (columns, wanted) in matrices.items():
        packing = _as_packing(wanted, wish.everywhere)
        for pattern, own in wish.overrides:
            if fnmatch.fnmatchcase(module, pattern):
                packing = own
                used.add(pattern)
        if packing and columns % packing.group_size == 0:
            chosen[module] = packing
    unused = [pattern for pattern, _ in wish.overrides if pattern not in used]
    if unused:
        raise UsageError(
            f"--bits-for: no module matches {unused[0]!r}",
            why=f"the first modules are {', '.join(list(matrices)[:4])}",
        )
    return chosen


def _as_packing(wanted: Wanted, usual: Packing) -> Packing | None:
    if isinstance(wanted, dict):  # more bits for what chooses experts
        return Packing(wanted["bits"], wanted["group_size"])
    return usual if wanted else None


def refuse_again(where: Path, packed: Mapping[str, Any], wish: PackingWish) -> None:
    """Refuse to pack again, unless the wish is what is there.

    Args:
        where: what is packed already, for the message.
        packed: its ``quantization``.
        wish: what the person wants.

    Raises:
        UsageError: the wish is another packing.
    """
    if not wish.given:
        return
    same = (
        wish.bits in (None, packed.get("bits"))
        and wish.group_size in (None, packed.get("group_size"))
        and not wish.overrides
    )
    if not same:
        raise UsageError(
            f"{where} is packed already: {packed.get('bits')} bits in groups of "
            f"{packed.get('group_size')}",
            why="packing it again would lose more than it saves",
            fix=[
                "leave --bits, --group-size and --bits-for out",
                "or name the unpacked checkpoint it was made from",
            ],
        )


def _splash_extra(directory: Path) -> dict[str, bytes]:
    path = directory / SPLASH_EXTRA
    return {path.name: path.read_bytes()} if path.is_file() else {}


def _special(config: Mapping[str, Any]) -> dict[str, int]:
    text = config.get("text_config")
    sources = (config, text if isinstance(text, dict) else {})
    return {
        name: value
        for name in ("bos", "pad")
        for source in sources
        if type(value := source.get(f"{name}_token_id")) is int
    }
