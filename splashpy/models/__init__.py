# SPDX-License-Identifier: Apache-2.0
"""Networks and their state.

The target's layers are mlx-lm's; ``target.py`` says what the engine asks of
them, ``state.py`` holds what they remember.
"""

from splashpy import blas

blas.prepare()
