# SPDX-License-Identifier: Apache-2.0
"""The models on this computer, found by the names people use.

Two places are looked at: the packages splashpy built, and the Hugging Face cache,
which is shared with other programs. Nothing here reaches the network.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from splashpy.errors import (
    ModelMissingError,
    ModelUnknownError,
    PackageError,
    PermissionDeniedError,
    UsageError,
)
from splashpy.package import hub, hub_cache, names
from splashpy.package.disk_space import bytes_below
from splashpy.package.model_directory import ModelDirectory, refuse_gguf
from splashpy.paths import Paths

Origin = Literal["package", "hub", "directory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledModel:
    """A model that is complete on disk and can be loaded.

    Attributes:
        name: shortest name that finds it: short name, ``OWNER/REPO`` or the path.
        kind: ``native`` (a splashpy package), ``splash`` (a Splash package) or
            ``mlx`` (a plain MLX model).
        path: directory to load.
        origin: ``package`` (built here), ``hub`` (Hugging Face cache) or
            ``directory`` (named by its path).
        model_type: architecture of the target.
        revision: commit for ``hub``; empty otherwise.
        size_bytes: bytes on disk.
        context_max: tokens of prompt plus answer.
        has_draft: the package brings a drafter.
        last_used: seconds since the epoch; None when it was never loaded.
    """

    name: str
    kind: Literal["native", "mlx", "splash"]
    path: Path
    origin: Origin
    model_type: str
    revision: str = ""
    size_bytes: int
    context_max: int
    has_draft: bool = False
    last_used: float | None = None


@dataclass(frozen=True, slots=True)
class Removal:
    """What ``Library.remove`` deletes or would delete.

    Attributes:
        paths: (path, bytes) of everything that goes.
        freed_bytes: disk space that becomes free; files other revisions still use
            are not counted.
    """

    paths: tuple[tuple[Path, int], ...]
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a name leads, before anything there is checked."""

    name: str
    origin: Origin
    path: Path
    revision: str = ""


class Library:
    """Built packages and MLX models of the Hugging Face cache."""

    def __init__(self, paths: Paths, hub_cache: Path | None = None):
        """Nothing is read yet.

        Args:
            paths: where splashpy keeps its files.
            hub_cache: Hugging Face cache; None asks huggingface_hub.
        """
        self._paths = paths
        self._hub_cache = hub_cache or hub.cache_directory()

    def installed(self) -> list[InstalledModel]:
        """Every complete model, packages first, each group by name."""
        models = []
        for place in self._places():
            try:
                models.append(self._open(place))
            except PackageError:
                continue  # incomplete, or of a kind splashpy does not run
        return models

    def find(self, name: str) -> InstalledModel:
        """The installed model a MODEL argument means.

        Raises:
            ModelUnknownError: no such name or directory; names the nearest three.
            ModelMissingError: a good name that is not installed; names the command.
            IntegrityError: installed, but incomplete or damaged.
            ModelKindError, RemoteCodeError, VersionError: it cannot be loaded.
            UsageError: not the form of a name.
        """
        place = self._locate(name)
        try:
            return self._open(place)
        except PackageError as error:
            if place.origin != "directory" and not error.fix:
                error.fix = (f"splashpy pull {place.name} --force",)
            raise

    def default_model(self, explicit: str | None = None) -> str:
        """The name meant: ``explicit``, else the only installed model, else demo."""
        if explicit:
            return explicit
        installed = self.installed()
        return installed[0].name if len(installed) == 1 else names.DEFAULT

    def remove(self, name: str, *, dry_run: bool = False) -> Removal:
        """Delete a model, complete or not; with ``dry_run`` only say what would go.

        Raises:
            ModelUnknownError, ModelMissingError: as ``find``.
            UsageError: a directory named by its path, which splashpy does not own.
            PermissionDeniedError: the files cannot be deleted.
        """
        place = self._locate(name)
        if place.origin == "directory":
            raise UsageError(
                f"{name} is a directory of yours; splashpy removes only what it pulled",
                fix=[f"rm -r {place.path}"],
            )
        try:
            if place.origin == "hub":
                freed, paths = hub.delete_revision(
                    self._hub_cache, place.revision, dry_run=dry_run
                )
                return Removal(paths, freed)
            return _remove_package(place.path, dry_run=dry_run)
        except PermissionError as error:
            raise PermissionDeniedError(
                f"{place.path} cannot be deleted", why=str(error)
            ) from None

    def touch(self, model: InstalledModel) -> None:
        """Remember that the model was used now; a read-only disk is no error."""
        mark = self._mark(model.path)
        try:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        except OSError:
            return

    def _places(self) -> list[_Place]:
        packages = self._paths.packages
        folders = sorted(packages.iterdir()) if packages.is_dir() else []
        return [
            *(_package_place(path) for path in folders if _is_package_folder(path)),
            *(_hub_place(item) for item in hub_cache.all_snapshots(self._hub_cache)),
        ]

    def _locate(self, text: str) -> _Place:
        refuse_gguf(text)
        name = names.parse(text)
        if name.path is not None:
            return _Place(text, "directory", name.path)
        if name.kind == "short":
            return self._locate_short(text)
        return self._locate_repo(text, name.repo, name.revision)

    def _locate_repo(self, text: str, repo: str, revision: str | None) -> _Place:
        snapshot = hub_cache.find_snapshot(self._hub_cache, repo, revision)
        if snapshot is None:
            raise _missing(text)
        return _hub_place(snapshot)

    def _locate_short(self, text: str) -> _Place:
        model = names.known(text)
        if model and model.repo:
            return self._locate_repo(model.name, model.repo, None)
        path = self._paths.packages / (model.recipe if model else text)
        if _is_package_folder(path):
            return _package_place(path)
        if model:
            raise _missing(model.name)
        if Path(text).is_dir():
            raise ModelUnknownError(
                f"no model is called {text!r}",
                why="a directory of that name is here; a path starts with ./",
                fix=[f"splashpy chat ./{text}"],
            )
        installed = [place.name for place in self._places()]
        raise names.unknown(text, [*installed, *(item.name for item in names.KNOWN)])

    def _open(self, place: _Place) -> InstalledModel:
        model = ModelDirectory.open(place.path)
        return InstalledModel(
            name=place.name,
            kind=model.kind,
            path=place.path,
            origin=place.origin,
            model_type=model.model_type,
            revision=place.revision,
            size_bytes=model.size_bytes,
            context_max=model.context_max,
            has_draft=model.draft is not None,
            last_used=self._last_used(place.path),
        )

    def _last_used(self, path: Path) -> float | None:
        try:
            return self._mark(path).stat().st_mtime
        except OSError:
            return None

    def _mark(self, path: Path) -> Path:
        """An empty file whose time of change is when the model was last used."""
        key = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:32]
        return self._paths.state / "last-used" / key


def _is_package_folder(path: Path) -> bool:
    """Whether a folder of packages/ is a package, not work in progress."""
    return path.is_dir() and not path.name.startswith(".") and path.suffix != ".partial"


def _package_place(path: Path) -> _Place:
    model = names.known(path.name)
    return _Place(model.name if model else path.name, "package", path)


def _hub_place(snapshot: hub_cache.CachedSnapshot) -> _Place:
    return _Place(snapshot.name, "hub", snapshot.path, snapshot.commit)


def _missing(name: str) -> ModelMissingError:
    return ModelMissingError(f"{name} is not installed", fix=[f"splashpy pull {name}"])


def _remove_package(path: Path, *, dry_run: bool) -> Removal:
    if path.is_symlink():  # what it leads to is not splashpy's
        if not dry_run:
            path.unlink()
        return Removal(((path, 0),), 0)
    size = bytes_below(path)
    removal = Removal(((path, size),), size)
    if not dry_run:
        # Renamed first: an interrupted deletion leaves no half package by that name.
        doomed = path.with_name(f".removed-{path.name}")
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
        shutil.rmtree(doomed)
    return removal
