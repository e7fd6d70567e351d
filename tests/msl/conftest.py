# SPDX-License-Identifier: Apache-2.0
"""Skip what needs a C++ compiler where there is none."""

from __future__ import annotations

import pytest
from msl import building


@pytest.fixture
def compiler() -> str:
    """Path of the C++ compiler."""
    reason = building.missing()
    if reason:
        pytest.skip(reason)
    return str(building.compiler())
