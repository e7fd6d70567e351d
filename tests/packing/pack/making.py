# SPDX-License-Identifier: Apache-2.0
"""Packages of a tiny target and a tiny drafter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from splashpy.package.progress import never, silent
from splashpy.packing.inputs import Input, resolve
from splashpy.packing.pack import Packed, PackWish, pack, plan_pack
from splashpy.paths import Paths

CARD = "---\nlicense: {license}\nbase_model: owner/target\n---\n# Model\n"


def local(path: Path) -> Input:
    return resolve(
        str(path),
        None,
        Paths.under(path.parent / "home"),
        offline=True,
        progress=silent,
        cancelled=never,
    )


def run(target: Path, drafter: Path | None, output: Path, **wishes: Any) -> Packed:
    wish = PackWish(
        target=local(target),
        draft=local(drafter) if drafter else None,
        output=output,
        **{"check": False, **wishes},
    )
    return pack(plan_pack(wish))


def content(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
