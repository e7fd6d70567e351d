# SPDX-License-Identifier: Apache-2.0
"""Kernels that mlx-lm ships run unchanged and agree with their formulas.

Their modules are loaded anew with the emulator in the place of
``mx.fast.metal_kernel``; nothing else of them is touched. Each call raises if the
emulator has anything to report.
"""

from __future__ import annotations

import importlib.util
from types import ModuleType

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from msl.emulator import EmulatedKernel, KernelFault

pytestmark = pytest.mark.usefixtures("compiler")

BF16_ULP = 2**-7  # relative distance of two neighbouring bfloat16 numbers


def emulated(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A private copy of a module of mlx-lm whose kernels are emulated."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        pytest.skip(f"this mlx-lm has no {name}")
    module = importlib.util.module_from_spec(spec)
    with monkeypatch.context() as patch:
        patch.setattr(mx.fast, "metal_kernel", EmulatedKernel)
        patch.setattr(mx.metal, "is_available", lambda: True)
        spec.loader.exec_module(module)
    return module


def normal(*shape: int, dtype: mx.Dtype = mx.float32, seed: int = 0) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(seed)).astype(dtype)


def wide(array: mx.array) -> np.ndarray:
    return np.array(array.astype(mx.float32))


GATED_DELTA = {"generic": (1, 8), "packed": (2, 16), "vector gates": (1, 8)}
"""Form of the kernel: batch and value dimension that select it."""


def gated_delta_inputs(
    batch: int, value_dim: int, *, vector_gates: bool = False
) -> dict[str, mx.array]:
    """Three rows, one key head of 128 and two value heads."""
    gates = (batch, 3, 2)
    return {
        "q": 0.1 * normal(batch, 3, 1, 128, seed=1),
        "k": 0.1 * normal(batch, 3, 1, 128, seed=2),
        "v": normal(batch, 3, 2, value_dim, seed=3),
        "g": mx.sigmoid(normal(*gates, *([128] if vector_gates else []), seed=4)),
        "beta": mx.sigmoid(normal(*gates, seed=5)),
        "state": normal(batch, 2, value_dim, 128, seed=6),
    }


@pytest.mark.parametrize("form", GATED_DELTA)
def test_gated_delta(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = emulated("mlx_lm.models.gated_delta", monkeypatch)
    inputs = gated_delta_inputs(*GATED_DELTA[form], vector_gates=form == "vector gates")
    packed = form == "packed"
    run = module.gated_delta_kernel if packed else module.gated_delta_kernel_unpacked
    y, state = run(**inputs)
    wanted_y, wanted_state = module.gated_delta_ops(**inputs)
    # sums of 128 float32 products in another order
    np.testing.assert_allclose(wide(y), wide(wanted_y), atol=2e-5)
    np.testing.assert_allclose(wide(state), wide(wanted_state), atol=2e-5)


def test_the_masked_gated_delta_kernel_stores_one_zero_from_every_lane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Harmless on a device, since all lanes store the same value, but a race by the
    # language's rules: the emulator tells no difference between the two.
    module = emulated("mlx_lm.models.gated_delta", monkeypatch)
    inputs = gated_delta_inputs(1, 8) | {"mask": mx.array([[True, False, True]])}
    with pytest.raises(KernelFault) as fault:
        module.gated_delta_kernel(**inputs)
    (finding,) = fault.value.findings
    assert finding.kind == "race"
    assert finding.code == "y[dv_idx] = static_cast<InT>(0);"


def test_norm_add_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    module = emulated("mlx_lm.kernels.norm_add_norm", monkeypatch)
    size = 200
    branch = normal(3, size, dtype=mx.bfloat16, seed=1)
    stream = normal(3, size, seed=2)
    alpha, beta = normal(size, seed=3), normal(size, seed=4)
    norm = nn.RMSNorm(size, eps=1e-5)
    new_stream, normed = module.norm_add_norm(
        branch,
        stream,
        alpha=alpha,
        beta=beta,
        post_weight=None,
        post_eps=1e-6,
        next_norm=norm,
    )
    post = wide(mx.fast.rms_norm(branch, None, 1e-6))
    wanted = wide(alpha) * wide(stream) + wide(beta) * post
    np.testing.assert_allclose(wide(new_stream), wanted, rtol=BF16_ULP, atol=0.03)
    wanted = wide(mx.fast.rms_norm(new_stream, norm.weight, norm.eps))
    np.testing.assert_allclose(wide(normed), wanted, rtol=BF16_ULP)


def test_query_and_key_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    module = emulated("mlx_lm.kernels.qk_norm", monkeypatch)
    heads, kv_heads, size = 3, 1, 40
    rows = normal(2, 2, 2 * (heads + kv_heads) * size, dtype=mx.bfloat16)
    q, k = module.qk_norm(
        rows,
        n_heads=heads,
        n_kv_heads=kv_heads,
        head_dim=size,
        eps=1e-6,
        query_scale=0.25,
    )
    parts = rows.reshape(2, 2, -1, size)[:, :, : heads + kv_heads]
    wanted = wide(mx.fast.rms_norm(parts.astype(mx.float32), None, 1e-6))
    np.testing.assert_allclose(wide(q), wanted[:, :, :heads] / 4, rtol=BF16_ULP)
    np.testing.assert_allclose(wide(k), wanted[:, :, heads:], rtol=BF16_ULP)


def test_norm_and_sigmoid_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    module = emulated("mlx_lm.kernels.rms_norm_sigmoid_gate", monkeypatch)
    x, gate = normal(1, 2, 5, 64), normal(1, 5, 128, seed=1)
    got = module.rms_norm_sigmoid_gate(x, gate, eps=1e-6)
    rows = mx.fast.rms_norm(x, None, 1e-6).transpose(0, 2, 1, 3).reshape(1, 5, 128)
    np.testing.assert_allclose(wide(got), wide(rows * mx.sigmoid(gate)), rtol=1e-5)


def test_expert_routing(monkeypatch: pytest.MonkeyPatch) -> None:
    module = emulated("mlx_lm.kernels.expert_routing", monkeypatch)
    logits, bias = normal(6, 48), 0.1 * normal(48, seed=1)
    chosen, weights = module.expert_routing(
        logits,
        bias,
        top_k=4,
        multiplier=1.5,
        score_eps=1e-6,
        route_scale=2.0,
    )
    scores = wide(mx.sigmoid(logits * 1.5))
    order = np.argsort(-(scores + wide(bias)), axis=1)[:, :4]
    picked = np.take_along_axis(scores, order, 1)
    assert chosen.tolist() == order.tolist()
    wanted = 2 * picked / picked.sum(1, keepdims=True)
    np.testing.assert_allclose(wide(weights), wanted, rtol=1e-5)


def test_weighted_sum_of_normed_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    module = emulated("mlx_lm.kernels.post_expert_norm_combine", monkeypatch)
    experts = normal(3, 4, 200, dtype=mx.bfloat16)
    weights = normal(3, 4, dtype=mx.bfloat16, seed=1)
    scale = normal(200, seed=2)
    got = module.post_expert_norm_combine(experts, weights, norm_weight=scale, eps=1e-6)
    normed = mx.fast.rms_norm(experts.astype(mx.float32) * scale, None, 1e-6)
    wanted = (wide(normed) * wide(weights)[..., None]).sum(1)
    # the sum is rounded to bfloat16 after each of four experts; it stays below 8
    np.testing.assert_allclose(wide(got), wanted, atol=4 * 2**-6)


def test_state_space_update(monkeypatch: pytest.MonkeyPatch) -> None:
    module = emulated("mlx_lm.models.ssm", monkeypatch)
    x, b, c = normal(2, 1, 4, 8), normal(2, 1, 2, 64, seed=1), normal(2, 1, 2, 64)
    decay, skip, bias = (normal(4, seed=i) for i in (2, 3, 4))
    step, state = normal(2, 1, 4, seed=5), normal(2, 4, 8, 64, seed=6)
    inputs = (x, decay, b, c, skip, step, bias, state, (0.001, 100.0))
    y, new_state = module.ssm_update_kernel(*inputs)
    wanted_y, wanted_state = module.ssm_attn(*inputs)
    # sums of 64 float32 products in another order
    np.testing.assert_allclose(wide(y), wide(wanted_y), atol=2e-5)
    np.testing.assert_allclose(wide(new_state), wide(wanted_state), atol=2e-5)
