# SPDX-License-Identifier: Apache-2.0
"""Whole answers with every kernel emulated are those without any."""

from __future__ import annotations

import itertools

import mlx.nn as nn
import tiny
from msl.stand_in import StandIn

from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.drafter import Drafter
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine.generation import generate
from splashpy.engine.request import GenerationRequest, TokensCommitted
from splashpy.kernels import gate
from splashpy.models.row_layers import use_row_kernels
from splashpy.models.target import MlxLmTarget
from splashpy.verification.sampling import SamplingParams

PROMPT = tuple(range(20))


def quantized_target(model_type: str, *, kernels: bool) -> MlxLmTarget:
    """Two layers in 4 bits; one of them recurrent in Qwen3.5."""
    network = tiny.model(
        model_type, num_hidden_layers=2, head_dim=64, full_attention_interval=2
    )
    nn.quantize(
        network,
        group_size=32,
        bits=4,
        class_predicate=lambda _, module: hasattr(module, "to_quantized"),
    )
    target = tiny.target_of(network, model_type)
    if kernels:
        target.use_row_kernels()
    return target


def drafter_for(target: MlxLmTarget, *, kernels: bool) -> DFlash2Drafter:
    config = {"block_size": 5, "mask_token_id": 259, "target_layer_ids": [0, 1]}
    selector = {
        "conv_kernel_size": 2,
        "conv_group_size": 8,
        "selector_rank": 8,
        "selector_top_k": 6,
    }
    network = tiny.drafter_network(
        num_hidden_layers=1,
        head_dim=64,
        layer_types=["full_attention"],
        num_target_layers=2,
        dflash_config=config | selector,
    )
    nn.quantize(
        network,
        group_size=32,
        bits=8,
        class_predicate=lambda name, module: (
            isinstance(module, nn.Linear) and "selector" not in name
        ),
    )
    if kernels:
        use_row_kernels(network)
    drafter = DFlash2Drafter(network, target)
    target.tap(drafter.feature_layers)
    return drafter


def answer(target: MlxLmTarget, drafter: Drafter, count: int, **choices: float) -> list:
    request = GenerationRequest(
        id="r",
        token_ids=PROMPT,
        sampling=SamplingParams(**choices),
        seed=11,
        max_new_tokens=count,
    )
    events = generate(request, target, drafter, None, cancelled=lambda: False)
    cycles = [event for event in events if isinstance(event, TokensCommitted)]
    return [token for cycle in cycles for token in cycle.token_ids]


def test_a_real_drafter_and_a_hybrid_target(device: StandIn) -> None:
    count = 7
    with gate.ruled(None):
        plain = quantized_target("qwen3_5", kernels=False)
        wanted = answer(plain, PlainDrafter(), count)
    target = quantized_target("qwen3_5", kernels=True)
    assert answer(target, drafter_for(target, kernels=True), count) == wanted
    assert set(device.names) >= {
        *("conv_prepare", "conv_finish", "conv_finish_plain", "add_rms_norm"),
        *("top_shards", "select_walk", "top_merge", "accept_greedy"),
        *("qmm_rows", "gated_rows", "attention_rows", "attention_combine"),
        *("gated_delta_prework", "gated_delta_verify"),
    }


def test_blocks_kept_in_part_and_whole(device: StandIn) -> None:
    count = 12
    with gate.ruled(None):
        plain = quantized_target("qwen3_5", kernels=False)
        wanted = answer(plain, PlainDrafter(), count)
    target = quantized_target("qwen3_5", kernels=True)
    lengths = itertools.cycle([2, 0, 3, 1])
    drafter = tiny.ScriptedDrafter(wanted, len(PROMPT), lengths, block_size=4)
    assert answer(target, drafter, count) == wanted
    assert "gated_delta_verify" in device.names


def test_a_sampled_answer_is_the_one_without_kernels(device: StandIn) -> None:
    choices = {"temperature": 0.9, "top_k": 20, "top_p": 0.95}
    target = quantized_target("llama", kernels=True)
    drafter = drafter_for(target, kernels=True)
    drawn = answer(target, drafter, 6, **choices)
    assert {"select_draw", "target_topk", "accept_sampled"} <= set(device.names)
    with gate.ruled(None):
        assert answer(target, drafter, 6, **choices) == drawn
