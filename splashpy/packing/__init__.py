# SPDX-License-Identifier: Apache-2.0
"""Someone building a package: recipe in, package out.

Read ``build.py`` first.
"""

from splashpy import blas

blas.prepare()
