# SPDX-License-Identifier: Apache-2.0
"""A Splash package on disk: what it is, and whether it is whole.

``reading.py`` reads its weights. The vision tower is recognised; its file may be
missing, since no text needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splashpy.errors import ModelKindError
from splashpy.package.fields import Fields, read_json
from splashpy.package.integrity import check_entries, refuse_code
from splashpy.package.progress import Cancelled, Progress, never, silent
from splashpy.package.splash.formats import FORMATS, GROUP_SIZE, SplashFormat
from splashpy.package.splash.header import check_image
from splashpy.package.splash.layout import TARGET_PREFIX
from splashpy.package.splash.manifest import (
    FILE_NAME,
    SplashManifest,
    weight_files,
)
from splashpy.package.splash.vision_layout import VISION_PATH


@dataclass(frozen=True, slots=True)
class SplashPackage:
    """A complete Splash package.

    Attributes:
        path: the directory.
        manifest: its manifest.json.
        config: tokenizer/config.json, that of the target.
        has_vision: the file of the vision tower is there.
    """

    path: Path
    manifest: SplashManifest
    config: dict[str, Any]
    has_vision: bool

    @classmethod
    def open(
        cls, path: Path, table: Mapping[str, SplashFormat] = FORMATS
    ) -> SplashPackage:
        """Read and check a package: sizes and headers, not digests.

        Args:
            path: the directory.
            table: formats that are known.

        Raises:
            VersionError: a format this splashpy does not know.
            ModelKindError: a key is missing or has a wrong value.
            RemoteCodeError: the configuration names Python to run.
            IntegrityError: a file is missing, damaged or not where it shall be.
        """
        manifest = SplashManifest.open(path, table)
        has_vision = (path / VISION_PATH).exists()
        package = cls(path, manifest, {}, has_vision)
        check_entries(path, package._present(), full=False)
        for layout in weight_files(manifest.row):
            if has_vision or layout.path != VISION_PATH:
                check_image(path / layout.path, layout)
        config = read_json(path / "tokenizer" / "config.json")
        _check_config(config, str(path / "tokenizer" / "config.json"), manifest.row)
        return cls(path, manifest, config, has_vision)

    def check_digests(
        self, progress: Progress = silent, cancelled: Cancelled = never
    ) -> None:
        """Hash every file.

        Raises:
            IntegrityError: a file differs; names it.
            CancelledError: ``cancelled`` said yes.
        """
        check_entries(
            self.path,
            self._present(),
            full=True,
            progress=progress,
            cancelled=cancelled,
        )

    def check_vision(
        self, progress: Progress = silent, cancelled: Cancelled = never
    ) -> None:
        """Hash the file of the vision tower.

        Raises:
            IntegrityError: it differs.
            CancelledError: ``cancelled`` said yes.
        """
        entries = [each for each in self.manifest.files if each.path == VISION_PATH]
        check_entries(
            self.path, entries, full=True, progress=progress, cancelled=cancelled
        )

    def target_config(self) -> dict[str, Any]:
        """config.json for mlx-lm: the model's own, and how its weights are packed."""
        row = self.manifest.row
        packed: dict[str, Any] = {"group_size": GROUP_SIZE, "bits": 4, "mode": "affine"}
        if row.target.experts is not None:
            eight = {"group_size": GROUP_SIZE, "bits": 8}
            for layer in range(row.target.num_layers):
                mlp = f"{TARGET_PREFIX}model.layers.{layer}.mlp."
                packed |= {f"{mlp}gate": eight, f"{mlp}shared_expert_gate": eight}
        config = {
            key: value
            for key, value in self.config.items()
            if key not in ("quantization", "quantization_config")
        }
        # Stop tokens are part of the format; the file may not name them all.
        named = config.get("eos_token_id")
        named = named if isinstance(named, list) else [named]
        ids = {token_id for token_id in named if type(token_id) is int}
        config["eos_token_id"] = sorted({*ids, *row.stop_token_ids})
        return {**config, "quantization": packed}

    def draft_config(self) -> dict[str, Any]:
        """config.json of the drafter: facts of the format, which no file repeats."""
        return draft_config(self.manifest.row)

    def _present(self) -> tuple[Any, ...]:
        return tuple(
            entry
            for entry in self.manifest.files
            if self.has_vision or entry.path != VISION_PATH
        )


def is_splash(path: Path) -> bool:
    """Whether a directory claims to be a Splash package."""
    file = path / FILE_NAME
    if not file.is_file():
        return False
    data = read_json(file)
    return "schema_version" in data and isinstance(data.get("format"), dict)


def draft_config(row: SplashFormat) -> dict[str, Any]:
    """config.json of the drafter of a format."""
    draft = row.draft
    return {
        "architectures": ["DFlash2DraftModel"],
        "model_type": "qwen3",
        "hidden_size": draft.hidden_size,
        "num_hidden_layers": draft.num_layers,
        "intermediate_size": draft.intermediate_size,
        "num_attention_heads": draft.num_heads,
        "num_key_value_heads": draft.num_kv_heads,
        "head_dim": draft.head_dim,
        "vocab_size": draft.vocab_size,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "is_causal": False,
        "sliding_window": draft.sliding_window,
        "layer_types": ["sliding_attention"] * draft.num_layers,
        "max_position_embeddings": draft.context_max,
        "num_target_layers": row.target.num_layers,
        "rope_parameters": {"rope_type": "default", "rope_theta": draft.rope_theta},
        "dflash_config": {
            "block_size": draft.block_size,
            "mask_token_id": draft.mask_token_id,
            "target_layer_ids": list(draft.feature_layers),
            "conv_kernel_size": draft.conv_taps,
            "conv_group_size": draft.conv_group_size,
            "selector_rank": draft.selector_rank,
            "selector_top_k": draft.selector_top_k,
        },
        "quantization": {"group_size": GROUP_SIZE, "bits": 4, "mode": "affine"},
    }


def _check_config(config: dict[str, Any], file: str, row: SplashFormat) -> None:
    refuse_code(config, file)
    text = Fields(config, file).object("text_config")
    expected = {
        "hidden_size": row.target.hidden_size,
        "vocab_size": row.target.vocab_size,
        "max_position_embeddings": row.target.context_max,
    }
    model_type = text.text("model_type")
    if model_type != f"{row.model_type}_text":
        raise ModelKindError(
            f"{file}: text_config.model_type is {model_type!r}",
            why=f"{row.name} has {row.model_type}_text",
        )
    for key, value in expected.items():
        if text.integer(key) != value:
            raise ModelKindError(
                f"{file}: text_config.{key} is {text.data[key]}",
                why=f"{row.name} has {value}",
            )
