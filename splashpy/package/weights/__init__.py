# SPDX-License-Identifier: Apache-2.0
"""The numbers in weight files, for whoever reads or writes them.

These modules need numpy; the rest of the room does without, since commands that only
list models would wait for it.
"""
