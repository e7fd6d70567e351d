# SPDX-License-Identifier: Apache-2.0
"""Tiny Splash packages: the published formats with small numbers in their tables.

Everything that reads or writes them is the code that handles the published sizes; only
the row of the table is another.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import tiny
from mlx.utils import tree_flatten, tree_map
from mlx_lm.utils import _get_classes

from splashpy.models.arrays import from_mlx
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.dflash2_parse import parse_config
from splashpy.package.splash.formats import FORMATS, GROUP_SIZE, SplashFormat
from splashpy.package.splash.geometry import Experts
from splashpy.package.splash.layout import draft_files
from splashpy.package.splash.package import draft_config
from splashpy.package.splash.vision_layout import vision_file
from splashpy.package.weights.tensor import Tensor, to_bfloat16
from splashpy.packing.quantize_on_demand import Packing, QuantizeOnDemand
from splashpy.packing.splash_files import SplashParts, write_splash

VOCAB = 320  # no multiple of a tile, so the head has rows that fill it
NAMES = tuple(FORMATS)


def tiny_format(name: str) -> SplashFormat:
    """A published format with a target of four layers."""
    row = FORMATS[name]
    experts = row.target.experts and Experts(
        count=8, per_token=2, intermediate_size=64, shared_intermediate_size=64
    )
    target = replace(
        row.target,
        num_layers=4,
        hidden_size=128,
        vocab_size=VOCAB,
        context_max=512,
        num_heads=2,
        num_kv_heads=1,
        head_dim=64,
        gdn_key_heads=2,
        gdn_value_heads=4,
        gdn_head_dim=32,
        intermediate_size=0 if experts else 192,
        experts=experts,
    )
    draft = replace(
        row.draft,
        num_layers=2,
        hidden_size=128,
        intermediate_size=192,
        vocab_size=VOCAB,
        num_heads=4,
        num_kv_heads=2,
        head_dim=32,
        context_max=512,
        mask_token_id=VOCAB - 1,
        feature_layers=(1, 2),
        selector_rank=64,
        selector_top_k=8,
    )
    vision = replace(
        row.vision,
        depth=1,
        width=8,
        patch_values=24,
        positions=4,
        intermediate_size=10,
        stored_intermediate_size=16,
        merged_width=32,
        out_width=128,
    )
    return replace(
        row, target=target, draft=draft, vision=vision, stop_token_ids=(0, 1)
    )


def target_config(row: SplashFormat) -> dict[str, Any]:
    """config.json of a target of this format, as an MLX repository has it."""
    target, experts = row.target, row.target.experts
    text: dict[str, Any] = {
        "model_type": f"{row.model_type}_text",
        "hidden_size": target.hidden_size,
        "intermediate_size": target.intermediate_size,
        "num_hidden_layers": target.num_layers,
        "num_attention_heads": target.num_heads,
        "num_key_value_heads": target.num_kv_heads,
        "head_dim": target.head_dim,
        "vocab_size": target.vocab_size,
        "max_position_embeddings": target.context_max,
        "full_attention_interval": target.attention_every,
        "linear_num_value_heads": target.gdn_value_heads,
        "linear_num_key_heads": target.gdn_key_heads,
        "linear_key_head_dim": target.gdn_head_dim,
        "linear_value_head_dim": target.gdn_head_dim,
        "linear_conv_kernel_dim": target.conv_taps,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [11, 11, 10],
        },
    }
    if experts:
        text |= {
            "num_experts": experts.count,
            "num_experts_per_tok": experts.per_token,
            "moe_intermediate_size": experts.intermediate_size,
            "shared_expert_intermediate_size": experts.shared_intermediate_size,
        }
    return {
        "model_type": row.model_type,
        "architectures": ["Tiny"],
        "eos_token_id": [0, 1],
        "text_config": text,
    }


def target_model(row: SplashFormat, seed: int = 0) -> nn.Module:
    """mlx-lm's own model, in bfloat16, packed as MLX repositories are."""
    config = target_config(row)
    model_class, args_class = _get_classes(config)
    model = model_class(args_class.from_dict(config))
    keys = iter(mx.random.split(mx.random.key(seed), 4096))
    model.update(
        tree_map(
            lambda a: (
                mx.random.normal(a.shape, key=next(keys)) * 0.1 + (a.ndim == 1)
            ).astype(mx.bfloat16),
            model.parameters(),
        )
    )
    pack(model)
    mx.eval(model.parameters())
    return model


def pack(model: Any) -> None:
    """Quantize in place: 4 bits, but 8 for what chooses experts."""
    chosen = getattr(model, "quant_predicate", None) or (lambda *_: True)
    nn.quantize(
        model,
        GROUP_SIZE,
        4,
        class_predicate=lambda path, module: (
            hasattr(module, "to_quantized") and chosen(path, module)
        ),
    )


def parameters(model: nn.Module) -> dict[str, mx.array]:
    """Every array of a model by name."""
    flat: Any = tree_flatten(model.parameters())
    return dict(flat)


def drafter(row: SplashFormat, seed: int = 1) -> dict[str, Tensor]:
    """The tensors of an unpacked drafter in bfloat16, by published name."""
    config = {k: v for k, v in draft_config(row).items() if k != "quantization"}
    network = DFlashNetwork(parse_config(config, "tiny"))
    keys = iter(mx.random.split(mx.random.key(seed), 4096))
    return {
        name: from_mlx(
            (mx.random.normal(array.shape, key=next(keys)) * 0.1).astype(mx.bfloat16)
        )
        for name, array in parameters(network).items()
    }


def packed_drafter(row: SplashFormat, tensors: dict[str, Tensor]) -> Callable:
    """Gives what the drafter's files hold."""
    names = {name for layout in draft_files(row) for name in layout.tensors()}
    modules = {name.rpartition(".")[0] for name in names if name.endswith(".scales")}
    return QuantizeOnDemand(
        tensors, dict.fromkeys(modules, Packing(bits=4, group_size=GROUP_SIZE))
    )


def vision_tensors(row: SplashFormat) -> dict[str, Tensor]:
    """Invented weights of the vision tower."""
    random = np.random.default_rng(2)
    return {
        name: to_bfloat16(random.normal(size=shape).astype(np.float32))
        for name, (_, shape) in vision_file(row).tensors().items()
    }


def tokenizer_files(row: SplashFormat) -> dict[str, bytes]:
    """What ``tokenizer/`` holds."""
    with TemporaryDirectory() as folder:
        tiny.write_tokenizer(Path(folder))
        files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    files |= {
        "chat_template.jinja": tiny.CHATML.encode(),
        "config.json": _json(target_config(row)),
        "vocab.json": _json(json.loads(files["tokenizer.json"])["model"]["vocab"]),
    }
    return {f"tokenizer/{name}": content for name, content in files.items()}


@dataclass(frozen=True)
class TinySplash:
    """A package and what it was made from.

    Attributes:
        path: the directory.
        row: its format.
        model: the target.
        draft: unpacked tensors of the drafter.
    """

    path: Path
    row: SplashFormat
    model: nn.Module
    draft: dict[str, Tensor]

    @property
    def table(self) -> dict[str, SplashFormat]:
        """The table of formats with this one's small numbers."""
        return {self.row.name: self.row}


def write_tiny_splash(directory: Path, name: str) -> TinySplash:
    """Write a package of a format."""
    row = tiny_format(name)
    model, draft = target_model(row), drafter(row)
    arrays, vision = parameters(model), vision_tensors(row)
    directory.mkdir(parents=True)
    write_splash(
        row,
        SplashParts(
            target=lambda wanted: from_mlx(arrays[wanted]),
            draft=packed_drafter(row, draft),
            vision=vision.__getitem__,
            tokenizer=tokenizer_files(row),
            model="Tiny",
        ),
        directory,
    )
    return TinySplash(directory, row, model, draft)


def _json(data: Any) -> bytes:
    return json.dumps(data).encode()
