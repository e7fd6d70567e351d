# SPDX-License-Identifier: Apache-2.0
"""Local speculative decoding on Apple silicon, in Python and MLX.

Read first: ``splashpy/engine/cycle.py`` (the main loop) and ``docs/architecture.md``
(which room a line lives in).
"""

from __future__ import annotations

__version__ = "0.1.0"
