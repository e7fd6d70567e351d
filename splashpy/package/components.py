# SPDX-License-Identifier: Apache-2.0
"""Target and drafter as splashpy.json describes them: facts, source, licence."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from splashpy.errors import ModelKindError
from splashpy.package import relative_path
from splashpy.package.fields import Fields

SourceKind = Literal["pypi-wheel", "huggingface", "recipe", "local"]
Redistribution = Literal["allowed", "forbidden", "unknown"]

_SOURCE_KINDS = ("pypi-wheel", "huggingface", "recipe", "local")
_REDISTRIBUTION = ("allowed", "forbidden", "unknown")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file something was made from, as it was published."""

    path: str
    size: int
    sha256: str

    @classmethod
    def read(cls, fields: Fields) -> SourceFile:
        """From the object of a manifest or recipe."""
        return cls(
            path=package_path(fields, "path"),
            size=fields.integer("size"),
            sha256=sha256_text(fields, "sha256"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a component came from.

    Attributes:
        kind: ``huggingface``: ``repo_id`` is OWNER/REPO and ``revision`` a 40-hex
            commit; ``pypi-wheel``: distribution name and version; ``recipe``: folder
            of splashpy's own repository and its version; ``local``: name of a
            directory or file and the digest of its files.
        repo_id, revision: see ``kind``.
        files: what was taken from there.
    """

    kind: SourceKind
    repo_id: str
    revision: str
    files: tuple[SourceFile, ...] = ()

    @classmethod
    def read(cls, fields: Fields) -> Source:
        """From the object of a manifest."""
        kind: Any = fields.choice("kind", _SOURCE_KINDS)
        return cls(
            kind=kind,
            repo_id=fields.text("repo_id"),
            revision=fields.text("revision"),
            files=tuple(
                # Only told: nothing is looked for by what a file was called elsewhere.
                SourceFile(
                    path=item.text("path"),
                    size=item.integer("size"),
                    sha256=sha256_text(item, "sha256"),
                )
                for item in fields.objects("files")
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class License:
    """The terms of a component.

    Attributes:
        spdx: SPDX identifier, or ``LicenseRef-...`` for other terms.
        text: path in the package of the full text.
        url: where the terms are published; may be empty.
        redistribution: whether a changed copy may be passed on.
    """

    spdx: str
    text: str
    url: str = ""
    redistribution: Redistribution = "unknown"

    @classmethod
    def read(cls, fields: Fields) -> License:
        """From the object of a manifest."""
        redistribution: Any = fields.choice(
            "redistribution", _REDISTRIBUTION, default="unknown"
        )
        return cls(
            spdx=fields.text("spdx"),
            text=package_path(fields, "text"),
            url=fields.text("url", default=""),
            redistribution=redistribution,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How weights are packed, in the words of ``mx.quantize``.

    Attributes:
        bits, group_size, mode: of every module not named in ``overrides``.
        overrides: module path to the parameters that differ there.
    """

    bits: int
    group_size: int
    mode: str = "affine"
    overrides: dict[str, Quantization] = field(default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> Quantization:
        """From the object of a manifest."""
        nested = fields.optional_object("overrides")
        modules = {m: nested.object(m) for m in nested.data} if nested else {}
        return cls(
            **_packing(fields),
            overrides={m: cls(**_packing(own)) for m, own in modules.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The model whose words count.

    Attributes:
        model_type: architecture name, as in config.json.
        mlx_lm: oldest mlx-lm version that loads it.
        hidden_size, num_hidden_layers, vocab_size: as in config.json.
        max_context: tokens of prompt plus answer.
        cache_kinds: what each layer remembers, ``kv`` or ``gdn``.
        quantization: None when the weights are not packed.
        source, license: where it came from and its terms.
    """

    model_type: str
    mlx_lm: str
    hidden_size: int
    num_hidden_layers: int
    vocab_size: int
    max_context: int
    cache_kinds: tuple[str, ...]
    quantization: Quantization | None
    source: Source
    license: License

    @classmethod
    def read(cls, fields: Fields) -> Target:
        """From the object of a manifest."""
        packed = fields.optional_object("quantization")
        target = cls(
            model_type=fields.text("model_type"),
            mlx_lm=fields.text("mlx_lm", default=""),
            hidden_size=fields.integer("hidden_size", low=1),
            num_hidden_layers=fields.integer("num_hidden_layers", low=1),
            vocab_size=fields.integer("vocab_size", low=1),
            max_context=fields.integer("max_context", low=1),
            cache_kinds=fields.texts("cache_kinds"),
            quantization=Quantization.read(packed) if packed else None,
            source=Source.read(fields.object("source")),
            license=License.read(fields.object("license")),
        )
        if len(target.cache_kinds) != target.num_hidden_layers:
            raise ModelKindError(
                f"{fields.file}: {fields.prefix}.cache_kinds has "
                f"{len(target.cache_kinds)} entries for "
                f"{target.num_hidden_layers} layers"
            )
        return target


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The drafter, as its own config.json describes it.

    Attributes:
        architecture: first of ``architectures``.
        dflash_config: that object of config.json, unchanged.
        layer_types: attention kind of each drafter layer.
        sliding_window: window of the sliding layers; None without any.
        is_causal: None when the configuration leaves it to the layer types.
        rope: its ``rope_parameters``.
        capture: which activation of a target layer is a feature.
        shares: target modules the drafter uses instead of its own.
        quantization: None when the weights are not packed.
        trained_for: (repository, revision) of the target it was trained with.
        source, license: where it came from and its terms.
    """

    architecture: str
    dflash_config: dict[str, Any]
    layer_types: tuple[str, ...] = ()
    sliding_window: int | None = None
    is_causal: bool | None = None
    rope: dict[str, Any] = field(default_factory=dict)
    capture: str = "layer_output"
    shares: tuple[str, ...] = ("embed_tokens", "lm_head")
    quantization: Quantization | None = None
    trained_for: tuple[str, str]
    source: Source
    license: License

    @classmethod
    def read(cls, fields: Fields) -> Draft:
        """From the object of a manifest."""
        packed = fields.optional_object("quantization")
        rope = fields.optional_object("rope")
        target = fields.object("trained_for")
        windowed = fields.has("sliding_window")
        return cls(
            architecture=fields.text("architecture"),
            dflash_config=fields.object("dflash_config").data,
            layer_types=fields.texts("layer_types"),
            sliding_window=fields.integer("sliding_window") if windowed else None,
            is_causal=fields.boolean("is_causal", default=False)
            if fields.has("is_causal")
            else None,
            rope=rope.data if rope else {},
            capture=fields.text("capture", default="layer_output"),
            shares=fields.texts("shares"),
            quantization=Quantization.read(packed) if packed else None,
            trained_for=(target.text("repo_id"), target.text("revision")),
            source=Source.read(fields.object("source")),
            license=License.read(fields.object("license")),
        )


def _packing(fields: Fields) -> dict[str, Any]:
    return {
        "bits": fields.integer("bits", low=1),
        "group_size": fields.integer("group_size", low=1),
        "mode": fields.text("mode", default="affine"),
    }


def sha256_text(fields: Fields, key: str) -> str:
    """A SHA-256 of 64 hex digits, in lower case."""
    value = fields.text(key).lower()
    if not _SHA256.fullmatch(value):
        raise ModelKindError(
            f"{fields.file}: {key} must be 64 hex digits, is {value!r}"
        )
    return value


def package_path(fields: Fields, key: str) -> str:
    """A path that stays inside the package."""
    value = fields.text(key)
    if problem := relative_path.problem(value):
        raise ModelKindError(f"{fields.file}: {key} {value!r} {problem}")
    return value
