# SPDX-License-Identifier: Apache-2.0
"""Local speculative decoding on Apple silicon, in Python and MLX.

Read first: ``splashpy/engine/cycle.py`` (the main loop) and ``docs/architecture.md``
(which room a line lives in).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splashpy import errors
from splashpy.version import __version__

if TYPE_CHECKING:
    from splashpy.api import Model, Reply, load

__all__ = ["Model", "Reply", "__version__", "errors", "load"]


def __getattr__(name: str) -> Any:
    """Import the Python API on first use: ``splashpy --help`` must not pay for it."""
    if name in {"Model", "Reply", "load"}:
        from splashpy import api  # noqa: PLC0415

        return getattr(api, name)
    raise AttributeError(f"module 'splashpy' has no attribute {name!r}")
