# SPDX-License-Identifier: Apache-2.0
"""Sizes of a terminal, in cells, at which the chat shows less or more."""

from __future__ import annotations

NARROW = 60
"""Below it: the name of the model and little else around the conversation."""

WIDE = 90
"""From it on there is room for a panel beside the conversation."""

TALL = 16
"""Below it: no footer, and pages without what explains them."""

TINY_WIDTH, TINY_HEIGHT = 20, 6
"""Below them nothing can be shown."""
