# SPDX-License-Identifier: Apache-2.0
"""Train a DFlash 2 drafter on the machine its target runs on.

The target writes the text (``writing.py``), its features and the tokens it expects are
kept beside it (``lessons.py``), blocks are drawn from it exactly as a drafter meets
them while decoding (``blocks.py``), and ``trainer.py`` runs the steps. What counts at
the end is the engine's own loop (``evaluate.py``). Read ``blocks.py`` first.

Knows nothing of command lines, and prints nothing.
"""

from splashpy import blas

blas.prepare()
