# SPDX-License-Identifier: Apache-2.0
"""One operation each: a plain MLX reference, and its Metal twin.

``metal.py`` alone knows whether there is a GPU.
"""

from splashpy import blas

blas.prepare()
