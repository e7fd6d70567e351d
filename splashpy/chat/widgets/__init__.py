# SPDX-License-Identifier: Apache-2.0
"""The parts of the chat screen; each draws state it is given and keeps none."""
