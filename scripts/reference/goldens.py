# SPDX-License-Identifier: Apache-2.0
"""Compute the DFlash golden vectors again with dflash 0.1.0.

scripts/goldens            compare with what is stored; exit 1 where it differs
scripts/goldens --write    store the new numbers

Weights, inputs and sampled paths are read from the cases and kept, as are the
``*_exact`` arrays (float64) and the JSON files, which other programs made.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import original

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "golden" / "dflash2"
TOLERANCE = 1e-6  # the same sums on another build of mlx
TEMPERATURE = 0.7

Arrays = dict[str, mx.array]


def main() -> None:
    write = sys.argv[1:] == ["--write"]
    if sys.argv[1:] and not write:
        sys.exit(__doc__)
    cases = sorted(path.parent for path in FOLDER.glob("v*/case.json"))
    worst = 0.0
    for folder in [*cases, FOLDER / "conv_unit"]:
        path = folder / "io.safetensors"
        stored = load(path)
        compute = convolution if folder.name == "conv_unit" else drafter_case
        computed = compute(folder, stored)
        difference = max(distance(stored[name], computed[name]) for name in computed)
        worst = max(worst, difference)
        kept = sorted({name.split(".", 1)[1] for name in stored.keys() - computed})
        print(
            f"{folder.name:20} {len(computed):3} arrays, largest change "
            f"{difference:.2g}; kept: {', '.join(kept)}"
        )
        if write:
            mx.save_safetensors(str(path), {**stored, **computed})
    if not write and worst > TOLERANCE:
        sys.exit("the stored numbers are not those of this package")


def load(path: Path) -> Arrays:
    loaded = mx.load(str(path))
    assert isinstance(loaded, dict)
    return loaded


def distance(stored: mx.array, computed: mx.array) -> float:
    gap = stored.astype(mx.float32) - computed.astype(mx.float32)
    largest: Any = mx.abs(gap).max().item()
    return largest


def convolution(folder: Path, stored: Arrays) -> Arrays:
    computed: Arrays = {}
    for taps in (2, 3):
        group = f"taps{taps}."
        conv = original.package.GroupedDynamicCausalConv(16, taps, 4)
        conv.base_kernel = stored[f"{group}base_kernel"]
        conv.kernel_projection.weight = stored[f"{group}kernel_projection.weight"]
        prepared, coefficients = conv.prepare(stored[f"{group}input"])
        computed[f"{group}prepared"] = prepared
        computed[f"{group}finish_coefficients"] = coefficients
        finished = conv.finish(stored[f"{group}sublayer_output"], coefficients)
        computed[f"{group}finished"] = finished
    return computed


def drafter_case(folder: Path, stored: Arrays) -> Arrays:
    drafter = original.load_drafter(folder)
    drafter.bind(target_ends(load(folder / "target_io.safetensors")))
    caches = drafter.make_cache()
    if folder.name == "v2_sliding_one_row":
        keep = drafter.config.sliding_window - 1
        caches = [original.OrderedCache(keep) for _ in caches]
    case = json.loads((folder / "case.json").read_text())
    computed: Arrays = {}
    for cycle in range(len(case["cycles"])):
        prefix = f"cycle{cycle}."
        given = {
            name.removeprefix(prefix): array
            for name, array in stored.items()
            if name.startswith(prefix)
        }
        results = one_cycle(drafter, caches, given)
        computed |= {
            prefix + name: array.astype(given[name].dtype)
            for name, array in results.items()
            if name in given  # smaller cases do not store everything
        }
    return computed


def target_ends(arrays: Arrays) -> Any:
    embedding, head = arrays["embed_tokens.weight"], arrays["lm_head.weight"]
    embed_tokens = nn.Embedding(*embedding.shape)
    embed_tokens.weight = embedding
    lm_head = nn.Linear(head.shape[1], head.shape[0], bias=False)
    lm_head.weight = head
    return SimpleNamespace(embed_tokens=embed_tokens, lm_head=lm_head)


def one_cycle(drafter: Any, caches: list[Any], given: Arrays) -> Arrays:
    block = given["block"][None]
    hidden = drafter.hidden_states(block, given["target_hidden"][None], caches)
    logits = drafter.compute_logits(hidden[:, 1:])
    results = {"hidden": hidden[0], "logits": logits[0]}
    for layer, cache in enumerate(caches):
        keys, values = time_ordered(cache)
        results[f"cache_k.{layer}"] = keys[0]
        results[f"cache_v.{layer}"] = values[0]
    if not hasattr(drafter, "candidate_selector"):
        return {**results, "greedy_path": mx.argmax(logits[0], axis=-1)}
    selector = drafter.candidate_selector
    path, candidates, _ = selector.select(hidden[:, 1:], logits, block[:, 0], 0)
    candidates = mx.sort(candidates[0], axis=-1)
    gate = selector.hidden_projection(hidden[0, 1:])
    unary = mx.take_along_axis(logits[0], candidates, axis=-1)

    def scores(tokens: mx.array) -> mx.array:
        before = mx.concatenate([block[0, :1], tokens[:-1]])
        edges = (
            selector.predecessor_codebook(before)[:, None]
            * gate[:, None]
            * selector.successor_codebook(candidates)
        ).sum(axis=-1)
        return unary + edges

    results |= {
        "greedy_path": path[0],
        "candidates_by_id": candidates,
        "hidden_projected": gate,
        "unary": unary,
        "scores_greedy_path": scores(path[0]),
    }
    if "sampled_path_T0.7" in given:
        drawn = scores(given["sampled_path_T0.7"])
        results["q_T0.7"] = mx.softmax(drawn / TEMPERATURE, axis=-1)
    return results


def time_ordered(cache: Any) -> tuple[mx.array, mx.array]:
    """Keys and values of a cache of either kind, oldest row first."""
    if isinstance(cache, original.OrderedCache):
        return cache.held
    keys, values = cache.keys, cache.values
    if hasattr(cache, "_temporal_order"):
        keys, values = cache._temporal_order(keys), cache._temporal_order(values)
    held = min(cache.offset, getattr(cache, "max_size", cache.offset))
    end = min(cache.offset, keys.shape[2])
    return keys[:, :, end - held : end], values[:, :, end - held : end]


if __name__ == "__main__":
    main()
