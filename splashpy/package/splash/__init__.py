# SPDX-License-Identifier: Apache-2.0
"""The files of a Splash package: container images of weights in a fixed order.

The manifest of such a package says which format it has and nothing about shapes, so
everything about a format is a row of ``formats.py``. Read that first, then
``layout.py``. Arrays here are numpy's; bfloat16 is two bytes nobody computes with.
"""
