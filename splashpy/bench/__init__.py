# SPDX-License-Identifier: Apache-2.0
"""Measure and prove: what speculation does to the text, and what it is worth.

Works on the engine's parts directly, on one thread, so that a run can be repeated,
compared and looked into token by token. Read ``lossless.py`` first.
"""

from splashpy import blas

blas.prepare()
