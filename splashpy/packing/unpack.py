# SPDX-License-Identifier: Apache-2.0
"""A package comes apart into ordinary directories.

``OUT/target`` is a model as mlx-lm and the Hub have them, ``OUT/draft`` a drafter as
its repository has it. Nothing is converted, except that the private tiles of a Splash
package become plain safetensors of the same numbers.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from splashpy.errors import ModelKindError
from splashpy.package.components import License
from splashpy.package.disk_space import bytes_below, check_free
from splashpy.package.manifest import Manifest
from splashpy.package.progress import (
    CancelledError,
    never,
    silent,
)
from splashpy.package.splash.vision_layout import VISION_PATH
from splashpy.packing.build import check_output, publish, write_error
from splashpy.packing.gather import Draft, Target, Work, gather_draft, gather_target
from splashpy.packing.inputs import Input
from splashpy.packing.part import LICENSE_NAME, Part
from splashpy.packing.target_files import json_bytes
from splashpy.packing.target_plan import PackingWish
from splashpy.protocol import LoadProgress

_COPY_BYTES = 16 << 20  # copied between two looks at a wish to stop


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What was written.

    Attributes:
        target: directory of the target.
        draft: directory of the drafter; None without one.
    """

    target: Path
    draft: Path | None


def unpack(
    package: Input,
    output: Path,
    *,
    force: bool = False,
    work: Work | None = None,
) -> Unpacked:
    """Write the parts of a package.

    Args:
        package: of splashpy or Splash.
        output: directory for ``target/`` and ``draft/``.
        force: replace what is there.
        work: reports, and a wish to stop.

    Raises:
        ModelKindError: not a package.
        UsageError: the directory is there already.
        IntegrityError: a file of the package is damaged.
        DiskSpaceError, PermissionDeniedError: the files have no place.
        CancelledError: a wish to stop; nothing is left by the final name.
    """
    work = work or Work(silent, never)
    if package.kind not in ("package", "splash"):
        raise ModelKindError(
            f"{package.text} is not a package",
            why="unpack takes packages of splashpy and Splash apart",
        )
    check_output(output, force=force)
    size = bytes_below(package.path)
    check_free(f"unpacking {package.name}", (output.parent, size))
    partial = output.with_name(f"{output.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            write = _unpack_native if package.kind == "package" else _unpack_splash
            write(package, partial, work)
            publish(partial, output)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise write_error(error, output) from error
    draft = output / "draft"
    return Unpacked(output / "target", draft if draft.is_dir() else None)


def _unpack_native(package: Input, output: Path, work: Work) -> None:
    manifest = Manifest.open(package.path)
    gather_target(package, PackingWish(), work)  # checks every digest
    _copy(package.path / "target", output / "target", work)
    _copy(package.path / "tokenizer", output / "target", work)
    _describe(
        Part.of_target(manifest),
        (package.path / manifest.target.license.text).read_bytes(),
        output / "target",
    )
    part = Part.of_draft(manifest)
    if part is not None:
        _copy(package.path / "draft", output / "draft", work)
        terms = (package.path / part.license.text).read_bytes()
        _describe(part, terms, output / "draft")


def _unpack_splash(package: Input, output: Path, work: Work) -> None:
    target = gather_target(package, PackingWish(), work)
    draft = gather_draft(package, None, work)
    _write_plan(target, output / "target", work)
    _write_files(output / "target", target.plan.tokenizer)
    license_ = target.terms.as_license(LICENSE_NAME)
    part = Part(
        name=target.name,
        source=target.origin.source,
        license=license_,
        sampling=target.sampling,
        special=dict(target.special),
        splash=target.splash,
    )
    _describe(part, target.terms.text, output / "target")
    _write_plan(draft, output / "draft", work)
    part = Part(
        name=target.name,
        source=draft.origin.source,
        license=license_,
        trained_for=draft.trained_for,
    )
    _describe(part, draft.terms.text, output / "draft")
    vision = package.path / VISION_PATH
    if vision.exists():
        _copy(vision.parent, output / "vision", work)


def _write_plan(part: Target | Draft, folder: Path, work: Work) -> None:
    folder.mkdir()
    _write_files(folder, {"config.json": json_bytes(part.plan.config)})
    _write_files(folder, part.plan.others)
    part.plan.shards.write(folder, work.progress, work.cancelled)


def _write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _describe(part: Part, terms: bytes, folder: Path) -> None:
    """Write what the package knew about the part, and its terms."""
    (folder / LICENSE_NAME).write_bytes(terms)
    names = sorted(path.name for path in folder.iterdir() if path.name != LICENSE_NAME)
    own = part.license
    beside = License(
        spdx=own.spdx, text=LICENSE_NAME, url=own.url, redistribution=own.redistribution
    )
    dataclasses.replace(part, license=beside).write(folder, names)


def _copy(source: Path, destination: Path, work: Work) -> None:
    destination.mkdir(exist_ok=True)
    for path in sorted(source.iterdir()):
        if not path.is_file():
            continue
        with path.open("rb") as from_, (destination / path.name).open("wb") as to:
            while chunk := from_.read(_COPY_BYTES):
                if work.cancelled():
                    raise CancelledError
                to.write(chunk)
        work.progress(LoadProgress(phase="prepare", item=path.name))
