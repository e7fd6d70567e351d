# SPDX-License-Identifier: Apache-2.0
"""Make a model usable on this computer: build its package or download it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from splashpy.errors import IntegrityError, PackageError, UsageError
from splashpy.package import hub, names
from splashpy.package.disk_space import free_bytes
from splashpy.package.integrity import check_files
from splashpy.package.manifest import Manifest
from splashpy.package.model_directory import ModelDirectory, refuse_gguf
from splashpy.package.progress import Cancelled, Progress, never, silent
from splashpy.package.published_drafters import PublishedDrafter, drafters_for
from splashpy.package.repository import only_vision, refuse_without_model
from splashpy.package.splash.package import SplashPackage
from splashpy.package.splash.vision_layout import VISION_PATH
from splashpy.packing.build import build, is_current, needed_bytes
from splashpy.packing.download import download, drop
from splashpy.packing.fetch import Supply
from splashpy.packing.memory_verdict import (
    MemoryVerdict,
    Weights,
    gguf_bits,
    judge,
    loaded_bytes,
)
from splashpy.packing.outlook import of_repository
from splashpy.packing.recipe import Recipe, WheelSource, find_recipe
from splashpy.paths import Paths


@dataclass(frozen=True, slots=True, kw_only=True)
class PullPlan:
    """What ``pull`` would do, told before anything large is moved.

    Attributes:
        name: as written.
        installed: already there and complete.
        revision: commit or version that would be fetched.
        download_bytes: bytes to transfer; 0 when everything is cached.
        needed_bytes: disk the work fills at its peak; ``disk_space.MARGIN_BYTES`` must
            stay free beside it.
        free_bytes: free disk at the destination.
        licenses: (part, licence) pairs.
        destination: directory the model would have.
        memory: whether it fits this computer; None when that is not known.
        drafters: published for a target like this one, told from its configuration;
            empty for what brings a drafter.
    """

    name: str
    installed: bool
    revision: str
    download_bytes: int
    needed_bytes: int
    free_bytes: int
    licenses: tuple[tuple[str, str], ...]
    destination: Path
    memory: MemoryVerdict | None = None
    drafters: tuple[PublishedDrafter, ...] = ()


def plan(
    name: str, paths: Paths, *, offline: bool = False, vision: bool = False
) -> PullPlan:
    """Say what ``pull`` would do; asks the Hub for sizes unless ``offline``.

    Args:
        name: as for ``pull``.
        paths: where packages go.
        offline: ask nobody.
        vision: with what ``pull_vision`` would do.

    Raises:
        The errors of ``pull`` and ``pull_vision``.
    """
    wish = _resolve(name)
    if isinstance(wish, Recipe):
        if vision:
            raise _no_vision(name)
        return _plan_build(name, wish, paths)
    if offline:
        return _plan_offline(name, wish)
    return _plan_download(name, wish, vision=vision)


def pull(
    name: str,
    paths: Paths,
    *,
    offline: bool = False,
    force: bool = False,
    progress: Progress = silent,
    cancelled: Cancelled = never,
) -> Path:
    """Build or download a model and return the directory to load.

    Args:
        name: short name or ``OWNER/REPO[@REVISION]``.
        paths: where packages go.
        offline: use only what is on this computer.
        force: hash every file although the model is installed, and fetch or build
            again what is damaged.
        progress: phases ``resolve``, ``download``, ``verify``, ``prepare``.
        cancelled: polled between chunks.

    Raises:
        ModelUnknownError: no such model.
        ModelKindError, RemoteCodeError: nothing splashpy can run.
        IntegrityError: a file differs from its recorded digest.
        OfflineError, HubError, DownloadError, AuthorisationError: see errors.py.
        DiskSpaceError, PermissionDeniedError: the files have no place.
        CancelledError: ``cancelled`` said yes.
        UsageError: a local directory, which needs no pull.
    """
    wish = _resolve(name)
    if isinstance(wish, Recipe):
        destination = paths.packages / wish.name
        if force and destination.exists():
            _drop_damaged(
                destination, offline=offline, progress=progress, cancelled=cancelled
            )
        supply = Supply(paths.cache, offline=offline)
        build(wish, destination, supply, progress=progress, cancelled=cancelled)
        for source in wish.sources:
            supply.discard(source)
        return destination
    return download(
        wish, offline=offline, force=force, progress=progress, cancelled=cancelled
    )


def pull_vision(
    name: str,
    *,
    offline: bool = False,
    progress: Progress = silent,
    cancelled: Cancelled = never,
) -> Path:
    """Download the vision tower of a Splash package that was pulled.

    No text needs it: it is for ``splashpy pack --format splash``.

    Args:
        name: as for ``pull``.
        offline: use only what is on this computer.
        progress: phases ``resolve``, ``download`` and ``verify``.
        cancelled: polled between chunks.

    Returns:
        The directory of the package.

    Raises:
        UsageError: this model has none in a file of its own.
        IntegrityError: it differs from the package's digest, and was deleted.
        SplashError: as ``pull``.
    """
    wish = _resolve(name)
    if isinstance(wish, Recipe):
        raise _no_vision(name)
    path = hub.vision_tower(
        wish.repo,
        wish.revision,
        offline=offline,
        progress=progress,
        cancelled=cancelled,
    )
    try:
        SplashPackage.open(path).check_vision(progress, cancelled)
    except IntegrityError:
        drop([path / VISION_PATH])
        raise
    return path


def _no_vision(name: str) -> UsageError:
    return UsageError(
        f"{name} is built here and has no vision tower",
        fix=[f"splashpy pull {name}"],
    )


def _resolve(text: str) -> Recipe | names.ModelName:
    """The recipe to build, or the repository to download."""
    refuse_gguf(text)
    name = names.parse(text)
    if name.kind == "directory":
        raise UsageError(
            f"{text} is a directory on this computer; there is nothing to pull",
            fix=[f"splashpy chat {text}"],
        )
    if name.kind == "hub":
        return name
    model = names.known(text)
    if model and model.repo:
        return names.parse(model.repo)
    return find_recipe(text)


def _drop_damaged(
    package: Path, *, offline: bool, progress: Progress, cancelled: Cancelled
) -> None:
    """Delete a package that differs from its digests; offline, only say so."""
    try:
        manifest = Manifest.open(package)
        check_files(
            package, manifest, full=True, progress=progress, cancelled=cancelled
        )
    except PackageError:
        if offline:
            raise
        shutil.rmtree(package)


def _plan_build(name: str, recipe: Recipe, paths: Paths) -> PullPlan:
    destination = paths.packages / recipe.name
    supply = Supply(paths.cache)
    installed = is_current(destination, recipe)
    licenses = [("target", recipe.license.spdx)]
    if recipe.draft:
        licenses.append(("draft", recipe.draft.license.spdx))
    return PullPlan(
        name=name,
        installed=installed,
        revision=recipe.sources[0].as_source().revision,
        download_bytes=0 if installed else supply.missing_bytes(recipe.sources[0]),
        needed_bytes=0 if installed else sum(needed_bytes(recipe, supply)),
        free_bytes=free_bytes(destination),
        licenses=tuple(licenses),
        destination=destination,
        memory=judge(_recipe_weights(recipe), {}),
    )


def _plan_offline(name: str, wish: names.ModelName) -> PullPlan:
    path = hub.snapshot(wish.repo, wish.revision, offline=True)
    ModelDirectory.open(path)
    return PullPlan(
        name=name,
        installed=True,
        revision=path.name,
        download_bytes=0,
        needed_bytes=0,
        free_bytes=free_bytes(hub.cache_directory()),
        licenses=(),
        destination=path,
    )


def _plan_download(name: str, wish: names.ModelName, *, vision: bool) -> PullPlan:
    cache = hub.cache_directory()
    facts = hub.repository_facts(wish.repo, wish.revision)
    refuse_without_model(facts)
    if vision:
        facts = replace(facts, files=(*facts.files, *only_vision(facts).files))
    outlook = of_repository(facts)
    folder = f"models--{wish.repo.replace('/', '--')}"
    return PullPlan(
        name=name,
        installed=outlook.download_bytes == 0,
        revision=facts.commit,
        download_bytes=outlook.download_bytes,
        needed_bytes=outlook.download_bytes,
        free_bytes=free_bytes(cache),
        licenses=(("model", facts.license or "unknown"),),
        destination=cache / folder / "snapshots" / facts.commit,
        memory=judge(outlook.parts, outlook.config),
        drafters=() if outlook.draft else drafters_for(outlook.config),
    )


def _recipe_weights(recipe: Recipe) -> list[Weights]:
    """Weights of the target and the drafter a recipe makes."""
    source = recipe.sources[0]
    file = source.file.path if isinstance(source, WheelSource) else ""
    parts = [Weights(source.output_bytes, gguf_bits(file))]
    if recipe.draft:
        files = [(file.name, file.stat().st_size) for file in recipe.draft.files()]
        parts.append(Weights(loaded_bytes(files)))
    return parts
