# SPDX-License-Identifier: Apache-2.0
"""What a directory says about a model, without loading a weight.

Three kinds are read: a native package (splashpy.json, ``target/``, ``tokenizer/``,
perhaps ``draft/``), a plain MLX model (everything in one directory, as mlx-lm and the
Hugging Face Hub have it) and a Splash package (manifest.json). Opening one checks that
it is complete and holds no code, so a directory that opens can be loaded and may be
listed as ready.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from splashpy.errors import IntegrityError, ModelKindError, ModelUnknownError
from splashpy.package.config_numbers import check_numbers
from splashpy.package.disk_space import bytes_below
from splashpy.package.fields import Fields, read_json
from splashpy.package.integrity import check_files, check_shards, refuse_code
from splashpy.package.manifest import FILE_NAME, Manifest
from splashpy.package.names import how_to_pack
from splashpy.package.splash.package import SplashPackage, is_splash
from splashpy.protocol import Sampling

CONTEXT_DEFAULT = 4096
"""Context of a model that states none, or an absurd one."""

_LARGEST_CONTEXT = 4 << 20  # no published model goes beyond; larger means "unlimited"

_MOST_LAYERS = 4096  # mlx-lm makes every layer before it looks for a weight
_TOKEN_ID = re.compile(r"[0-9]{1,9}")

_CONTEXT_KEYS = (
    "max_position_embeddings",
    "max_sequence_length",
    "seq_length",
    "n_positions",
    "n_ctx",
)

_REQUIRED = ("hidden_size", "num_hidden_layers", "vocab_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDirectory:
    """A complete model on disk.

    Attributes:
        path: the directory.
        kind: ``native`` (splashpy.json), ``mlx`` (mlx-lm layout) or ``splash``, where
            ``target`` and ``draft`` are the package itself.
        target: directory with config.json and model*.safetensors.
        tokenizer: directory with tokenizer.json and its companions.
        draft: directory of the drafter; None without one.
        config: the target's config.json.
        model_type: architecture name.
        hidden_size, num_layers, vocab_size: of the target.
        context_max: tokens of prompt plus answer the model was made for;
            ``CONTEXT_DEFAULT`` when it does not say.
        sampling: the makers' defaults; None fields where they say nothing.
        size_bytes: bytes on disk.
        manifest: splashpy.json; None for other kinds.
    """

    path: Path
    kind: Literal["native", "mlx", "splash"]
    target: Path
    tokenizer: Path
    draft: Path | None
    config: dict[str, Any]
    model_type: str
    hidden_size: int
    num_layers: int
    vocab_size: int
    context_max: int
    sampling: Sampling
    size_bytes: int
    manifest: Manifest | None = None

    @classmethod
    def open(cls, path: Path) -> ModelDirectory:
        """Read and check a model directory.

        Sizes and headers of weights are checked, their digests are not
        (``integrity.check_files``).

        Raises:
            ModelUnknownError: no such directory.
            ModelKindError: not a model splashpy reads, or a key is missing.
            RemoteCodeError: the configuration names Python to run.
            IntegrityError: files missing, cut short or damaged.
            VersionError: splashpy.json of an unknown format or version.
        """
        if not path.is_dir():
            raise ModelUnknownError(f"{path}: no such directory")
        if (path / FILE_NAME).exists():
            return cls._open_native(path)
        if is_splash(path):
            return cls._open_splash(path)
        _refuse_other_kinds(path)
        return cls._open(path, "mlx", path, path)

    @classmethod
    def _open_splash(cls, path: Path) -> ModelDirectory:
        package = SplashPackage.open(path)
        row = package.manifest.row
        _refuse_code_in(path / "tokenizer", package.config)
        check_numbers(package.config, str(path / "tokenizer" / "config.json"))
        temperature, top_p, top_k = row.sampling
        return cls(
            path=path,
            kind="splash",
            target=path,
            tokenizer=path / "tokenizer",
            draft=path,
            config=package.target_config(),
            model_type=row.model_type,
            hidden_size=row.target.hidden_size,
            num_layers=row.target.num_layers,
            vocab_size=row.target.vocab_size,
            context_max=row.target.context_max,
            sampling=Sampling(temperature=temperature, top_p=top_p, top_k=top_k),
            size_bytes=bytes_below(path),
        )

    @classmethod
    def _open_native(cls, path: Path) -> ModelDirectory:
        manifest = Manifest.open(path)
        check_files(path, manifest, full=False)
        draft = path / "draft" if manifest.draft else None
        if draft:
            check_shards(draft)
        parts = path / "target", path / "tokenizer"
        return cls._open(path, "native", *parts, draft=draft, manifest=manifest)

    @classmethod
    def _open(
        cls,
        path: Path,
        kind: Literal["native", "mlx"],
        target: Path,
        tokenizer: Path,
        draft: Path | None = None,
        manifest: Manifest | None = None,
    ) -> ModelDirectory:
        config = read_json(target / "config.json")
        fields = Fields(config, str(target / "config.json"))
        _refuse_code_in(target, config)
        _refuse_code_in(tokenizer, {})
        check_shards(target)
        if not (tokenizer / "tokenizer.json").is_file():
            raise ModelKindError(f"{tokenizer}: tokenizer.json is missing")
        sizes = read_sizes(fields)
        check_numbers(config, fields.file)
        if manifest:
            _check_sizes(path, sizes, manifest)
        hidden_size, num_layers, vocab_size = sizes
        return cls(
            path=path,
            kind=kind,
            target=target,
            tokenizer=tokenizer,
            draft=draft,
            config=config,
            model_type=fields.text("model_type"),
            hidden_size=hidden_size,
            num_layers=num_layers,
            vocab_size=vocab_size,
            context_max=_sane_context(manifest.target.max_context)
            if manifest
            else context_max(config),
            sampling=_sampling(tokenizer, target, manifest),
            size_bytes=bytes_below(path),
            manifest=manifest,
        )

    def eos_token_ids(self) -> tuple[int, ...]:
        """Every token that any of the files says ends an answer, ascending.

        config.json, generation_config.json, the tokenizer and the manifest are all
        asked: published models disagree among themselves, and each list alone has
        been the incomplete one.
        """
        ids = set(self.manifest.tokens.eos_token_ids if self.manifest else ())
        ids |= token_ids(self.config.get("eos_token_id"))
        ids |= token_ids(_text_config(self.config).get("eos_token_id"))
        for generation in _generation_configs(self.tokenizer, self.target):
            ids |= token_ids(generation.data.get("eos_token_id"))
        ids |= tokenizer_eos(self.tokenizer)
        return tuple(sorted(ids))


def context_max(config: dict[str, Any]) -> int:
    """Tokens of prompt plus answer a config.json promises.

    A multimodal configuration keeps the number in ``text_config``. An absent or
    absurd one (below 1, above 4 M, not an integer) gives ``CONTEXT_DEFAULT``.
    """
    for source in (_text_config(config), config):
        for key in _CONTEXT_KEYS:
            value = source.get(key)
            if value is not None:
                return _sane_context(value)
    return CONTEXT_DEFAULT


def _sane_context(value: Any) -> int:
    sane = type(value) is int and 0 < value <= _LARGEST_CONTEXT
    return value if sane else CONTEXT_DEFAULT


def refuse_gguf(text: str) -> None:
    """Refuse a GGUF file where a model to run is wanted; anything else passes.

    Args:
        text: a MODEL argument.

    Raises:
        ModelKindError: such a file, with the commands that pack and run it.
        ModelUnknownError: a path where there is none.
    """
    if not text.endswith(".gguf"):
        return
    if ":" not in text and not Path(text).expanduser().is_file():
        raise ModelUnknownError(f"{text}: no such file")
    raise ModelKindError(
        f"{text} is a GGUF file, which is packed before it runs",
        why="packing checks it, keeps or makes codes MLX reads, and can add a drafter",
        fix=how_to_pack(text),
    )


def _refuse_other_kinds(path: Path) -> None:
    """Name what was found when it is a model of a kind splashpy does not read."""
    if not (path / "config.json").is_file():
        gguf = sorted(path.glob("*.gguf"))
        found = "GGUF files" if gguf else f"neither {FILE_NAME} nor config.json"
        raise ModelKindError(
            f"{path}: not a model splashpy reads ({found})",
            why="supported: packages of splashpy and Splash, and MLX models in "
            "safetensors",
            fix=how_to_pack(str(gguf[0])) if gguf else (),
        )


def _refuse_code_in(directory: Path, config: dict[str, Any]) -> None:
    refuse_code(config, str(directory / "config.json"))
    for name in ("tokenizer_config.json", "generation_config.json"):
        path = directory / name
        if path.is_file():
            refuse_code(read_json(path), str(path))


def read_sizes(fields: Fields) -> tuple[int, int, int]:
    """Width, depth and vocabulary of a target's config.json.

    Raises:
        ModelKindError: one is missing, no positive number, or absurd.
    """
    nested = fields.optional_object("text_config")
    if nested and not fields.has("hidden_size"):
        fields = nested
    hidden_size, num_layers, vocab_size = (
        fields.integer(key, low=1) for key in _REQUIRED
    )
    if num_layers > _MOST_LAYERS:
        raise ModelKindError(
            f"{fields.file}: num_hidden_layers is {num_layers}",
            why=f"splashpy reads models of up to {_MOST_LAYERS} layers",
        )
    return hidden_size, num_layers, vocab_size


def _check_sizes(path: Path, sizes: tuple[int, int, int], manifest: Manifest) -> None:
    stated = manifest.target
    expected = (stated.hidden_size, stated.num_hidden_layers, stated.vocab_size)
    if sizes != expected:
        raise IntegrityError(
            f"{path}: {FILE_NAME} and target/config.json disagree",
            why=f"{', '.join(_REQUIRED)}: {expected} and {sizes}",
        )


def _text_config(config: dict[str, Any]) -> dict[str, Any]:
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else {}


def _sampling(tokenizer: Path, target: Path, manifest: Manifest | None) -> Sampling:
    if manifest:
        own = manifest.sampling
        if (own.temperature, own.top_p, own.top_k) != (None, None, None):
            return Sampling(
                temperature=own.temperature, top_p=own.top_p, top_k=own.top_k
            )
    for fields in _generation_configs(tokenizer, target):
        if fields.data.get("do_sample") is False:
            return Sampling(temperature=0.0)
        return Sampling(
            temperature=fields.number("temperature"),
            top_p=fields.number("top_p"),
            top_k=fields.integer("top_k") if fields.has("top_k") else None,
        )
    return Sampling()


def _generation_configs(*directories: Path) -> Iterator[Fields]:
    for directory in dict.fromkeys(directories):
        path = directory / "generation_config.json"
        if path.is_file():
            yield Fields(read_json(path), str(path))


def tokenizer_eos(directory: Path) -> set[int]:
    """The end token that the tokenizer's files in a directory name, if they do."""
    path = directory / "tokenizer_config.json"
    data = read_json(path) if path.is_file() else {}
    eos = data.get("eos_token")
    content = eos.get("content") if isinstance(eos, dict) else eos
    if not isinstance(content, str):
        return set()
    decoder = data.get("added_tokens_decoder")
    for token_id, token in decoder.items() if isinstance(decoder, dict) else ():
        if isinstance(token, dict) and token.get("content") == content:
            return token_ids(int(token_id)) if _TOKEN_ID.fullmatch(token_id) else set()
    added = read_json(directory / "tokenizer.json").get("added_tokens")
    for token in added if isinstance(added, list) else ():
        if isinstance(token, dict) and token.get("content") == content:
            return token_ids(token.get("id"))
    return set()


def token_ids(value: Any) -> set[int]:
    """The token ids in an ``eos_token_id``, which is a number, a list or absent."""
    items = value if isinstance(value, list) else [value]
    return {item for item in items if type(item) is int and item >= 0}
