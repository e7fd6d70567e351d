# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pkgutil
import subprocess
import sys

from splashpy import package

HEAVY = ("mlx", "mlx_lm", "transformers", "numpy", "huggingface_hub", "httpx")


def test_the_room_is_light_to_import() -> None:
    modules = [
        f"splashpy.package.{item.name}"
        for item in pkgutil.iter_modules(package.__path__)
    ]
    modules.append("splashpy.package.splash.package")
    code = (
        f"import sys, {', '.join(modules)}\n"
        f"print(*(name for name in {HEAVY} if name in sys.modules))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert len(modules) > 10
    assert done.stdout == "\n"
