# SPDX-License-Identifier: Apache-2.0
"""Words on a command line become a call; exit codes.

It knows flags, streams and signals, no arrays. Read ``__init__.py`` (main) and
``options.py`` (the one table of options) first.
"""
