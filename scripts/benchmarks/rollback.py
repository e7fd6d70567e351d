# SPDX-License-Identifier: Apache-2.0
"""Compare taking a block back in a hybrid target with reading one more token.

The target has random weights and the layers of Qwen3.5: three of four recurrent. A
block of eight rows is read and evaluated; then every number of its rows is kept in
turn, and what the state became is evaluated. Time is processor time of all threads,
so that other work on the machine does not count.

Bytes are those of arrays that were not there before: what a block leaves behind, its
new state and the inputs of its recurrences; what is left after rolling back, and what
there was at the worst moment meanwhile. Without a GPU, mlx runs the recurrence as a few
operations a row and holds what each of them writes until the last is done, in any
pass; Metal's kernel does not.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean
from time import process_time
from typing import Any

import measure
import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models.qwen3_5 import Model, ModelArgs

from splashpy.models.loading import make_target
from splashpy.models.recurrent_lane import LaneRecurrent
from splashpy.models.state import TargetState
from splashpy.models.target import MlxLmTarget

CONTEXT, BLOCK = 256, 8
REPEATS = 8  # of every number of kept rows, in one sample
CONFIG = {
    "model_type": "qwen3_5",
    "hidden_size": 64,
    "num_hidden_layers": 8,
    "intermediate_size": 192,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
}


def main() -> None:
    options = measure.arguments(__doc__ or "", rounds=5)
    target = tiny_hybrid()
    arms = {"rollback": rollback_arm(target), "forward": forward_arm(target)}
    samples = measure.interleave(arms, options.rounds)
    times = {name: measure.summary(taken, "ms") for name, taken in samples.items()}
    memory = held_bytes(target)
    document = {
        "schema": "splashpy.bench_rollback/1",
        "config": CONFIG,
        "block": BLOCK,
        "ms": times,
        "ratios": {
            "rollback_vs_forward": times["rollback"]["median"]
            / times["forward"]["median"]
        },
        "bytes": memory,
        "samples": samples,
    }
    rows = [["what", "figure", "spread"]]
    rows += [measure.row(name, figure, "ms") for name, figure in times.items()]
    rows += [[k, f"{v:.3f}", ""] for k, v in document["ratios"].items()]
    rows += [[f"bytes: {name}", f"{value:,}", ""] for name, value in memory.items()]
    measure.report(document, rows, as_json=options.json)


def tiny_hybrid() -> MlxLmTarget:
    model = Model(ModelArgs.from_dict(CONFIG))
    model.eval()
    named: Any = tree_flatten(model.parameters())
    weights: list[mx.array] = [array for _, array in named]
    mx.eval(weights)
    return make_target(model, "qwen3_5", 4096, sum(array.nbytes for array in weights))


def rollback_arm(target: MlxLmTarget):
    state = read_context(target)

    def run() -> dict[str, float]:
        spent = [
            timed(lambda kept=kept: state.roll_back(CONTEXT + kept), state)
            for kept in range(1, BLOCK)
            for _ in range(REPEATS)
            if read_block(target, state, BLOCK)
        ]
        return {"ms": mean(spent)}

    return run


def forward_arm(target: MlxLmTarget):
    state = read_context(target)

    def run() -> dict[str, float]:
        spent = []
        for _ in range((BLOCK - 1) * REPEATS):
            state.roll_back(CONTEXT)
            spent.append(timed(lambda: read_block(target, state, 1), state))
        return {"ms": mean(spent)}

    return run


def timed(act: Callable[[], object], state: TargetState) -> float:
    """Processor milliseconds of an act and of evaluating the state after it."""
    started = process_time()
    act()
    mx.eval(state.arrays)
    return 1000 * (process_time() - started)


def read_context(target: MlxLmTarget) -> TargetState:
    state = target.new_state(CONTEXT + BLOCK)
    target.forward(state, mx.arange(CONTEXT), rows=0)
    mx.eval(state.arrays)
    return state


def read_block(target: MlxLmTarget, state: TargetState, rows: int) -> bool:
    """Read a block after the context."""
    state.roll_back(CONTEXT)
    ids = mx.arange(rows)
    mx.eval(target.forward(state, ids, rows=rows).logits, state.arrays)
    return True


def held_bytes(target: MlxLmTarget) -> dict[str, int]:
    """What a block and a roll back hold at most, beside what was held before."""
    state = read_context(target)
    recurrent = [lane for lane in state.lanes if isinstance(lane, LaneRecurrent)]
    before = mx.get_active_memory()
    read_block(target, state, BLOCK)
    block = mx.get_active_memory() - before
    most = left = 0
    for kept in range(1, BLOCK):
        read_block(target, state, BLOCK)
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        state.roll_back(CONTEXT + kept)
        mx.eval(state.arrays)
        most = max(most, mx.get_peak_memory() - before)
        left = max(left, mx.get_active_memory() - before)
    return {
        "weights": target.facts.weight_bytes,
        "recurrent_state": sum(a.nbytes for lane in recurrent for a in lane.arrays),
        "block_held": block,
        "rollback_held": left,
        "rollback_peak": most,
    }


if __name__ == "__main__":
    main()
