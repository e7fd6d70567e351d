# SPDX-License-Identifier: Apache-2.0
"""The prefix cache on disk: it survives a restart.

Nothing here but ``tier.py`` and ``arrays.py`` knows mlx. Losing a record costs a miss;
a damaged one is never used. Read ``tier.py`` first.
"""
