# SPDX-License-Identifier: Apache-2.0
"""A repository of the Hub becomes a verified model in the Hugging Face cache."""

from __future__ import annotations

from pathlib import Path

from splashpy.errors import IntegrityError, PackageError
from splashpy.models.loading import check_model_type
from splashpy.package import hub, hub_cache
from splashpy.package.integrity import check_files, refuse_code
from splashpy.package.model_directory import ModelDirectory
from splashpy.package.names import ModelName
from splashpy.package.progress import Cancelled, Progress
from splashpy.package.splash.package import SplashPackage


def download(
    name: ModelName,
    *,
    offline: bool,
    force: bool,
    progress: Progress,
    cancelled: Cancelled,
) -> Path:
    """Fetch what is missing, hash what is new, and return the directory to load.

    Args:
        name: a repository, perhaps with a revision.
        offline: use only what is on this computer.
        force: hash everything, and fetch again what is damaged.
        progress: phases ``resolve``, ``download`` and ``verify``.
        cancelled: polled between chunks.

    Raises:
        SplashError: as :func:`splashpy.packing.pull.pull`.
    """
    held = hub_cache.find_snapshot(hub.cache_directory(), name.repo, name.revision)
    before = held.path if held and _opens(held.path) else None
    if force and held:
        drop(hub_cache.damaged_blobs(held.path, progress, cancelled))
    if not offline:
        _refuse_unsupported(name)
    path = hub.snapshot(
        name.repo,
        name.revision,
        offline=offline,
        progress=progress,
        cancelled=cancelled,
    )
    if force or path != before:
        _check_content(path, progress, cancelled)
    check_model_type(name.repo, ModelDirectory.open(path).model_type)
    return path


def _opens(path: Path) -> bool:
    try:
        ModelDirectory.open(path)
    except PackageError:
        return False
    return True


def _refuse_unsupported(name: ModelName) -> None:
    """Look at config.json first: refusing after 17 GB would be late."""
    config = hub.configuration(name.repo, name.revision)
    refuse_code(config, f"{name.repo}: config.json")
    if "model_type" in config:
        check_model_type(name.repo, str(config["model_type"]))


def _check_content(path: Path, progress: Progress, cancelled: Cancelled) -> None:
    """Hash what the cache has digests for, and all of a native package."""
    if damaged := hub_cache.damaged_blobs(path, progress, cancelled):
        drop(damaged)
        raise IntegrityError(
            f"{damaged[0]}: its SHA-256 differs from what the Hub announced",
            why="the damaged file was deleted",
        )
    directory = ModelDirectory.open(path)
    if directory.kind == "splash":
        SplashPackage.open(path).check_digests(progress, cancelled)
    elif directory.manifest:
        check_files(
            path,
            directory.manifest,
            full=True,
            progress=progress,
            cancelled=cancelled,
        )


def drop(files: list[Path]) -> None:
    """Delete files of the cache and what they link to."""
    for file in files:
        file.resolve().unlink(missing_ok=True)
        file.unlink(missing_ok=True)
