# SPDX-License-Identifier: Apache-2.0
"""The version of splashpy, written once."""

__version__ = "0.1.0"
