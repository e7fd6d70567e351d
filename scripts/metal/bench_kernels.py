# SPDX-License-Identifier: Apache-2.0
"""Compare every Metal kernel with MLX and race it, on a Mac.

Shapes are those of a Qwen3.8-27B pair in 4 bits, for several numbers of rows and
lengths of context. Each line is one contest: the least bytes it must move, the time of
the kernel and of MLX (medians over dependent calls with weights that change), how much
of the chip's bandwidth the kernel reached, and the verdict. Nothing is kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from time import perf_counter

import mlx.core as mx

from splashpy.bench.kernels import look
from splashpy.kernels import contests, metal
from splashpy.kernels.contest import Contest, judge, sustain
from splashpy.kernels.cycle_work import DFLASH2_27B as DRAFT
from splashpy.kernels.cycle_work import QWEN38_27B as MODEL
from splashpy.kernels.roofline import Work

MATRICES = (
    *((17_408, 5120), (5120, 17_408), (12_288, 5120), (10_240, 5120)),
    *((6144, 5120), (5120, 6144), (1024, 5120), (248_320, 5120)),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[2, 4, 5, 6, 8, 12, 16])
    parser.add_argument("--bits", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 8192, 32_768])
    parser.add_argument("--sustain", type=float, default=0, help="seconds per kernel")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    if not metal.use_metal():
        print("there is no Metal GPU here: nothing to race", file=sys.stderr)
        return 1
    seen = look()
    print(f"{seen.device}, mlx {seen.mlx}", file=sys.stderr)
    results = []
    for contest in _contests(given.rows, given.bits, given.lengths):
        verdict = judge(contest, perf_counter)
        stall = ""
        if given.sustain and verdict.state in ("on", "slower"):
            stall = sustain(contest, given.sustain, perf_counter)
        mx.clear_cache()
        measured = verdict.kernel_seconds
        work = Work(verdict.bytes, verdict.flops)
        share = seen.chip.seconds(work) / measured if seen.chip and measured else 0
        results.append({**asdict(verdict), "share": share, "stall": stall})
        if not given.json:
            print(
                f"{contest.operation:<20} {contest.shape!s:<52} "
                f"{verdict.bytes / 1e6:8.2f} MB  {measured * 1e6:9.1f} us  "
                f"MLX {verdict.stock_seconds * 1e6:9.1f} us  {share:4.0%}  "
                f"{verdict.state} {verdict.reason} {stall}".rstrip(),
                flush=True,
            )
    if given.json:
        print(json.dumps({"device": seen.device, "mlx": seen.mlx, "results": results}))
    return 0


def _contests(
    rows: Sequence[int], bits: Sequence[int], lengths: Sequence[int]
) -> Iterator[Contest]:
    dtype = mx.bfloat16
    heads = (MODEL.heads, MODEL.groups, MODEL.width)
    assert MODEL.delta is not None
    for count in rows:
        for width in bits:
            yield contests.gated(
                count, MODEL.intermediate, MODEL.hidden, width, 64, dtype
            )
            for outputs, inputs in MATRICES:
                yield contests.matrix(count, outputs, inputs, width, 64, dtype)
        for length in lengths:
            yield contests.attention(count, heads, length, dtype)
            yield contests.attention(count, heads, length, dtype, packed=True)
        yield contests.add_norm(count, MODEL.hidden, dtype)
        yield from contests.delta(count, MODEL.delta, dtype)
        yield from contests.target_choices(count, MODEL.vocab)
        yield contests.accept(count - 1)
    size = (DRAFT.block, MODEL.hidden, DRAFT.taps, DRAFT.conv_group)
    yield from contests.convolutions(*size, dtype)
    slots, vocab = DRAFT.block - 1, MODEL.vocab
    yield contests.choice(slots, vocab, vocab, DRAFT.count, DRAFT.rank)


if __name__ == "__main__":
    sys.exit(main())
