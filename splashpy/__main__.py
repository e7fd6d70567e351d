# SPDX-License-Identifier: Apache-2.0
"""``python -m splashpy`` is the command ``splashpy``."""

from __future__ import annotations

import sys

from splashpy.cli import main

sys.exit(main())
