# SPDX-License-Identifier: Apache-2.0
"""The engine host: commands in, events out.

An I/O thread does the text work (``dialogue``), the engine's own thread does
every MLX call. Read ``host.py`` first.
"""

from splashpy import blas

blas.prepare()
