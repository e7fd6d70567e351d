# SPDX-License-Identifier: Apache-2.0
"""Kernels on the emulator, compared with the same formula in float64."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msl import building
from msl.stand_in import StandIn, emulated


@pytest.fixture
def device() -> Iterator[StandIn]:
    """Every operation runs its kernel, emulated."""
    reason = building.missing()
    if reason:
        pytest.skip(reason)
    with emulated() as stand_in:
        yield stand_in
