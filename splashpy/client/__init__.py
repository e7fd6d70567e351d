# SPDX-License-Identifier: Apache-2.0
"""The ways to reach an engine host: child process, in memory, replay.

``client.py`` says what they have in common.
"""
