# SPDX-License-Identifier: Apache-2.0
"""Remember: state of earlier requests, found by token ids.

Read ``prefix.py`` first.
"""

from splashpy import blas

blas.prepare()
