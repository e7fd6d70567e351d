# SPDX-License-Identifier: Apache-2.0
"""Owns the thread, the loop and the life of a request.

Read ``cycle.py`` first: propose, verify, accept, roll back on one page.
"""

from splashpy import blas

blas.prepare()
