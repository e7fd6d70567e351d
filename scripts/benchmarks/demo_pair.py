# SPDX-License-Identifier: Apache-2.0
"""The demo pair, fetched if need be and loaded as everybody loads it."""

from __future__ import annotations

from splashpy.bench.session import Session
from splashpy.package.library import Library
from splashpy.package.model_directory import ModelDirectory
from splashpy.packing.pull import pull
from splashpy.paths import Paths
from splashpy.protocol import LoadOptions


def open_demo(draft: str | None = None) -> Session:
    """Load the demo.

    Args:
        draft: directory of another drafter than its own.
    """
    paths = Paths.default()
    pull("demo", paths)
    directory = ModelDirectory.open(Library(paths).find("demo").path)
    return Session.open(directory, LoadOptions(draft=draft), paced=True)
