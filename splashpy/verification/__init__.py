# SPDX-License-Identifier: Apache-2.0
"""Decide: which drafted tokens the target keeps.

Read ``accept.py`` first.
"""

from splashpy import blas

blas.prepare()
