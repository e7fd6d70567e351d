# SPDX-License-Identifier: Apache-2.0
"""A person at a terminal: the Textual application.

It speaks to an engine through ``client`` only and never imports mlx. Read
``app.py`` first.
"""
