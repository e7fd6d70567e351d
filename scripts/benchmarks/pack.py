# SPDX-License-Identifier: Apache-2.0
"""Measure packing against mlx's quantizer alone on the same tensors.

Three arms work on one checkpoint of random BF16 weights: ``pack`` does all of
``splashpy pack`` (hash the source, read, quantize, write, hash), ``quantizer`` only
turns the matrices into codes, and ``mx.quantize`` is that alone, on matrices that are
in memory already. Throughput counts the bytes of the matrices before packing.

Packing cannot move fewer bytes than this: the checkpoint is read twice (digest,
weights), and what is written is read once more for its digest.

Peak memory is that of a process which packs a checkpoint many times larger than what
it may hold: everything the process had, less the largest tensor.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model
from tokenizers import Tokenizer, models

from splashpy.models.arrays import from_mlx
from splashpy.package.progress import never, silent
from splashpy.package.weights.safetensors_file import Entry, write_safetensors
from splashpy.package.weights.tensor import Tensor
from splashpy.packing.inputs import resolve
from splashpy.packing.pack import PackWish, pack, plan_pack
from splashpy.packing.quantize import quantize
from splashpy.packing.target_plan import USUAL
from splashpy.paths import Paths

LAYERS = 4
LAYERS_FOR_MEMORY = 24
BOUND_RATIO = 0.60
BOUND_BYTES = 3 << 29  # 1.5 GiB above the largest tensor
MIB = 1 << 20

# A Qwen3 of width 2,048 with a smaller vocabulary.
WIDE, INNER, HEADS, KEY_HEADS, SIZE, WORDS = 2048, 6144, 16, 8, 128, 65536
CONFIG = {
    "model_type": "qwen3",
    "hidden_size": WIDE,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "head_dim": SIZE,
    "vocab_size": WORDS,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
}


def main() -> None:
    options = measure.options(__doc__ or "", rounds=5).parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-pack-") as folder:
        document = measured(Path(folder), options.rounds)
    ratios, memory = document["ratios"], document["memory"]
    rows = [["arm", "MiB/s", "spread"]]
    for clock in ("wall", "cpu"):
        for name, figure in document["mib_s"][clock].items():
            rows.append(measure.row(f"{name} ({clock})", figure, ""))
    rows += [[name, f"{ratio:.2f}", ""] for name, ratio in ratios.items()]
    rows.append(["bound of pack_vs_quantize", f"{BOUND_RATIO:.2f}", ""])
    for name, value in memory.items():
        rows.append([f"memory: {name}", f"{value / MIB:.0f} MiB", ""])
    measure.report(document, rows, as_json=options.json)
    if ratios["pack_vs_quantize"] < BOUND_RATIO:
        raise SystemExit("error: packing is slower than its bound")
    if memory["above_largest_tensor"] > BOUND_BYTES:
        raise SystemExit("error: packing holds more memory than its bound")


def measured(folder: Path, rounds: int) -> dict[str, Any]:
    """The document, without where it was made."""
    memory = peak_memory(folder)
    checkpoint = write_checkpoint(folder / "checkpoint", LAYERS)
    matrices = read_matrices(checkpoint)
    num_bytes = sum(matrix.nbytes for matrix in matrices)
    arms = {
        "mx.quantize": timed(lambda: with_mlx(matrices), num_bytes),
        "quantizer": timed(lambda: with_quantizer(matrices), num_bytes),
        "pack": timed(lambda: with_pack(checkpoint, folder / "out"), num_bytes),
    }
    samples = measure.interleave(arms, rounds)
    rates = {
        clock: {name: measure.summary(taken, clock) for name, taken in samples.items()}
        for clock in ("wall", "cpu")
    }
    wall, cpu = (
        {name: figure["median"] for name, figure in rates[clock].items()}
        for clock in ("wall", "cpu")
    )
    return {
        "schema": "splashpy.bench_pack/1",
        "matrix_bytes": num_bytes,
        "packing": {"bits": USUAL.bits, "group_size": USUAL.group_size},
        "mib_s": rates,
        "ratios": {
            "pack_vs_quantize": wall["pack"] / wall["mx.quantize"],
            "pack_vs_quantize_cpu": cpu["pack"] / cpu["mx.quantize"],
            "quantizer_vs_quantize": wall["quantizer"] / wall["mx.quantize"],
            "quantizer_vs_quantize_cpu": cpu["quantizer"] / cpu["mx.quantize"],
        },
        "bounds": {
            "pack_vs_quantize": BOUND_RATIO,
            "above_largest_tensor": BOUND_BYTES,
        },
        "memory": memory,
        "samples": samples,
    }


def timed(work: Callable[[], None], num_bytes: int) -> Callable[[], dict[str, float]]:
    """An arm: MiB in a second of the wall clock, and of all processors together."""

    def run() -> dict[str, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        return {
            "cpu": num_bytes / MIB / (time.process_time() - cpu),
            "wall": num_bytes / MIB / (time.perf_counter() - wall),
        }

    return run


def with_mlx(matrices: list[mx.array]) -> None:
    for matrix in matrices:
        mx.eval(mx.quantize(matrix, group_size=USUAL.group_size, bits=USUAL.bits))


def with_quantizer(matrices: list[mx.array]) -> None:
    for matrix in matrices:
        quantize(
            from_mlx(matrix), group_size=USUAL.group_size, bits=USUAL.bits, name="it"
        )


def with_pack(checkpoint: Path, output: Path) -> None:
    paths = Paths.under(output.parent / "home")
    target = resolve(
        str(checkpoint), None, paths, offline=True, progress=silent, cancelled=never
    )
    pack(plan_pack(PackWish(target=target, draft=None, output=output, check=False)))
    shutil.rmtree(output)


def peak_memory(folder: Path) -> dict[str, int]:
    """What a process holds at most that packs a checkpoint by command.

    Linux counts the memory of the process that starts another as the other's, so this
    must come before anything large, and a third process writes the checkpoint.
    """
    checkpoint = folder / "large"
    writer = multiprocessing.get_context("spawn").Process(
        target=write_checkpoint, args=(checkpoint, LAYERS_FOR_MEMORY)
    )
    writer.start()
    writer.join()
    command = [sys.executable, "-m", "splashpy", "pack", str(checkpoint)]
    command += ["-o", str(folder / "packed"), "--no-check", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"error: {' '.join(command)} ended with {process.returncode}")
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    sizes = [2 * math.prod(shape) for shape in shapes(LAYERS_FOR_MEMORY).values()]
    return {
        "checkpoint": sum(sizes),
        "largest_tensor": max(sizes),
        "peak": peak,
        "above_largest_tensor": peak - max(sizes),
    }


def write_checkpoint(directory: Path, layers: int) -> Path:
    """A model of BF16 noise, as the Hub has them."""
    entries: dict[str, Entry] = {
        f"{module}.weight": ("BF16", shape) for module, shape in shapes(layers).items()
    }
    noise = np.random.default_rng(0).standard_normal(1 << 20, np.float32) * 0.02
    pattern = (noise.view(np.uint32) >> 16).astype(np.uint16)

    def tensor(name: str) -> Tensor:
        dtype, shape = entries[name]
        return Tensor(dtype, np.resize(pattern, shape))

    directory.mkdir()
    write_safetensors(directory / "model.safetensors", entries, tensor)
    config = json.dumps({**CONFIG, "num_hidden_layers": layers})
    (directory / "config.json").write_text(config, encoding="utf-8")
    vocabulary = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    vocabulary.save(str(directory / "tokenizer.json"))
    return directory


def shapes(layers: int) -> dict[str, tuple[int, ...]]:
    """Module to shape of its weight, in a model of so many layers."""
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens": (WORDS, WIDE),
        "model.norm": (WIDE,),
    }
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        found |= {
            f"{prefix}.self_attn.q_proj": (HEADS * SIZE, WIDE),
            f"{prefix}.self_attn.k_proj": (KEY_HEADS * SIZE, WIDE),
            f"{prefix}.self_attn.v_proj": (KEY_HEADS * SIZE, WIDE),
            f"{prefix}.self_attn.o_proj": (WIDE, HEADS * SIZE),
            f"{prefix}.self_attn.q_norm": (SIZE,),
            f"{prefix}.self_attn.k_norm": (SIZE,),
            f"{prefix}.mlp.gate_proj": (INNER, WIDE),
            f"{prefix}.mlp.up_proj": (INNER, WIDE),
            f"{prefix}.mlp.down_proj": (WIDE, INNER),
            f"{prefix}.input_layernorm": (WIDE,),
            f"{prefix}.post_attention_layernorm": (WIDE,),
        }
    return found


def read_matrices(checkpoint: Path) -> list[mx.array]:
    """The matrices that are packed, unread."""
    model = load_model(checkpoint, lazy=True)[0]
    return [
        array
        for _, array in tree_flatten(model.parameters())
        if isinstance(array, mx.array) and array.ndim == 2
    ]


if __name__ == "__main__":
    main()
