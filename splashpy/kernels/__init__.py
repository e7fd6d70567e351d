# SPDX-License-Identifier: Apache-2.0
"""One operation each: a plain MLX reference, and its Metal twin.

``metal.py`` alone knows whether there is a GPU; ``gate.py`` says which of the two runs,
and ``contest.py`` finds out. ``roofline.py`` counts what an operation must do.
"""

from splashpy import blas

blas.prepare()
