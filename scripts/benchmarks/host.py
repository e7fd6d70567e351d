# SPDX-License-Identifier: Apache-2.0
"""Compare the host time of a cycle with that of dflash 0.1.0 (PyPI).

Both programs decode with the same drafter network and the same target, whose layers do
nothing. MLX computes on threads of its own and hands the work to them inside
``mx.eval`` and ``mx.async_eval``; host time is the processor time that the thread of
the loop spends outside those two, divided by the cycles: Python, and the building of
graphs. Detokenizing is not part of either arm.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import thread_time
from typing import Any

import measure
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import KVCache

from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.engine.generation import generate
from splashpy.engine.request import GenerationRequest, TokensCommitted
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.dflash2_load import load_drafter
from splashpy.models.dflash2_parse import parse_config
from splashpy.models.target import MlxLmTarget, TargetFacts
from splashpy.verification.sampling import SamplingParams

sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))
import original

VOCAB = 49_152
HIDDEN = 32
PROMPT = tuple(range(100, 164))
TOKENS = 64
DRAFTER: dict[str, Any] = {
    "architectures": ["DFlash2DraftModel"],
    "hidden_size": HIDDEN,
    "num_hidden_layers": 5,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCAB,
    "max_position_embeddings": 4096,
    "num_target_layers": 3,
    "is_causal": False,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "dflash_config": {
        "block_size": 8,
        "mask_token_id": 0,
        "target_layer_ids": [0, 1, 2],
        "conv_kernel_size": 2,
        "conv_group_size": 16,
        "selector_rank": 16,
        "selector_top_k": 16,
    },
}


class HostClock:
    """Processor time of this thread outside MLX's evaluation."""

    def __init__(self) -> None:
        self._inside = 0.0
        mx.eval, mx.async_eval = self._watch(mx.eval), self._watch(mx.async_eval)

    def _watch(self, evaluate: Callable[..., None]) -> Callable[..., None]:
        def watched(*arrays: Any) -> None:
            started = thread_time()
            evaluate(*arrays)
            self._inside += thread_time() - started

        return watched

    def __call__(self) -> float:
        return thread_time() - self._inside


class IdleLayer(nn.Module):
    """A decoder layer that remembers its rows and changes nothing."""

    def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        rows = x[:, None, :, :4]
        cache.update_and_fetch(rows, rows)
        return x


class IdleBackbone(nn.Module):
    """Embedding, idle layers, no norm."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.layers = [IdleLayer() for _ in range(3)]

    def __call__(self, inputs: mx.array, cache: list[Any]) -> mx.array:
        hidden = self.embed_tokens(inputs)
        for layer, lane in zip(self.layers, cache, strict=True):
            hidden = layer(hidden, None, lane)
        return hidden


class IdleModel(nn.Module):
    """A target in mlx-lm's shape: the next token depends on the last one only."""

    def __init__(self) -> None:
        super().__init__()
        self.model = IdleBackbone()
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)
        mx.eval(self.parameters())

    @property
    def layers(self) -> list[IdleLayer]:
        return self.model.layers

    def make_cache(self) -> list[KVCache]:
        return [KVCache() for _ in self.layers]

    def __call__(self, inputs: mx.array, cache: list[Any]) -> mx.array:
        return self.lm_head(self.model(inputs, cache))


def main() -> None:
    options = measure.arguments(__doc__ or "", rounds=10)
    mx.random.seed(0)
    clock = HostClock()
    model = IdleModel()
    with TemporaryDirectory() as folder:
        directory = write_drafter(Path(folder))
        arms = {
            "splashpy": splashpy_arm(model, directory, clock),
            "dflash": dflash_arm(model, directory, clock),
        }
    samples = measure.interleave(arms, options.rounds)
    figures = {name: measure.summary(s, "host_ms") for name, s in samples.items()}
    ratio = figures["splashpy"]["median"] / figures["dflash"]["median"]
    document = {
        "schema": "splashpy.bench_host/1",
        "drafts": 7,
        "vocabulary": VOCAB,
        "drafter_layers": DRAFTER["num_hidden_layers"],
        "host_ms_per_cycle": {n: f["median"] for n, f in figures.items()},
        "spread": {n: f["spread"] for n, f in figures.items()},
        "ratios": {"host_vs_dflash": ratio},
        "samples": samples,
    }
    rows = [
        ["arm", "host time per cycle", "spread"],
        *[
            [n, f"{f['median']:.2f} ms", f"±{100 * f['spread']:.0f} %"]
            for n, f in figures.items()
        ],
        ["host_vs_dflash", f"{ratio:.2f}", ""],
    ]
    measure.report(document, rows, as_json=options.json)


def write_drafter(directory: Path) -> Path:
    network = DFlashNetwork(parse_config(DRAFTER, "drafter"))
    weights: Any = tree_flatten(network.parameters())
    mx.save_safetensors(str(directory / "model.safetensors"), dict(weights))
    (directory / "config.json").write_text(json.dumps(DRAFTER))
    return directory


def splashpy_arm(model: IdleModel, directory: Path, clock: HostClock):
    target = MlxLmTarget(
        model,
        TargetFacts(
            model_type="idle",
            vocab_size=VOCAB,
            hidden_size=HIDDEN,
            num_layers=3,
            context_max=4096,
        ),
    )
    drafter = DFlash2Drafter(load_drafter(directory, target.facts), target)

    def run() -> dict[str, float]:
        target.tap(drafter.feature_layers)
        request = GenerationRequest(
            id="bench",
            token_ids=PROMPT,
            sampling=SamplingParams(),
            seed=0,
            max_new_tokens=TOKENS,
        )
        events = generate(request, target, drafter, None, cancelled=lambda: False)
        cycles, started = -1, 0.0
        for event in events:
            if isinstance(event, TokensCommitted):
                cycles += 1
                if cycles == 0:
                    started = clock()
        seconds = clock() - started
        target.tap(())
        return {"host_ms": 1e3 * seconds / cycles, "cycles": cycles}

    return run


def dflash_arm(model: IdleModel, directory: Path, clock: HostClock):
    drafter = original.load_drafter(directory)

    def run() -> dict[str, float]:
        layers = list(model.model.layers)
        responses = original.package.stream_generate(
            model, drafter, original.NoText(), mx.array(PROMPT), max_tokens=TOKENS
        )
        cycles, started = -1, 0.0
        for response in responses:
            if not response.tokens:
                continue
            cycles += 1
            if cycles == 0:
                started = clock()
        seconds = clock() - started
        model.model.layers = layers  # dflash leaves its hooks in the list
        return {"host_ms": 1e3 * seconds / cycles, "cycles": cycles}

    return run


if __name__ == "__main__":
    main()
