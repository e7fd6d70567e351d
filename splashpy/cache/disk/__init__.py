# SPDX-License-Identifier: Apache-2.0
"""The prefix cache on disk: it survives a restart.

Losing a record costs a miss; a damaged one is never used. ``tier.py`` and what it calls
on the engine's thread (``outgoing.py``, ``arrays.py``) know mlx, everything else does
not. Read ``tier.py`` first.
"""
