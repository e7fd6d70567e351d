# SPDX-License-Identifier: Apache-2.0
"""Propose: drafters guess the next tokens.

A drafter never decides what is emitted. Read ``drafter.py`` first.
"""

from splashpy import blas

blas.prepare()
