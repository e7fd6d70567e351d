# SPDX-License-Identifier: Apache-2.0
"""The machine the engine computes on, in the protocol's words."""

from __future__ import annotations

import os
import platform

import mlx.core as mx

from splashpy.protocol import Device


def device(blas: str) -> Device:
    """Facts of the default device; 0 where the platform does not say."""
    if mx.default_device() == mx.cpu:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return Device(name=f"CPU {platform.machine()}", memory_bytes=pages, blas=blas)
    info = mx.device_info()
    return Device(
        name=str(info.get("device_name", "GPU")),
        gpu_cores=int(info.get("gpu_core_count", 0)),
        memory_bytes=int(info.get("memory_size", 0)),
        working_set_bytes=int(info.get("max_recommended_working_set_size", 0)),
        blas=blas,
    )


def memory_bytes() -> int:
    """Bytes a model and its states may take on the default device; 0 where unknown."""
    found = device("")
    return found.working_set_bytes or found.memory_bytes
