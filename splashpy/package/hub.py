# SPDX-License-Identifier: Apache-2.0
"""From a repository name to a complete folder in the Hugging Face cache.

huggingface_hub does the transfer, so its settings (``HF_TOKEN``, ``HF_HOME``,
``HF_ENDPOINT``, proxies) hold and downloads are shared with other programs. It is
imported inside functions: offline commands never pay for it. Only the files a loader
reads are fetched.
"""

from __future__ import annotations

import glob
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from splashpy.errors import OfflineError
from splashpy.package import hub_cache
from splashpy.package.disk_space import bytes_below, check_free
from splashpy.package.fields import read_json
from splashpy.package.hub_errors import mapped
from splashpy.package.hub_progress import Tally
from splashpy.package.progress import Cancelled, Progress, never, silent
from splashpy.package.relative_path import leaves
from splashpy.package.repository import (
    RepositoryFacts,
    needed_files,
    only_gguf,
    only_vision,
    refuse_without_model,
    vision_files,
)
from splashpy.package.splash.vision_layout import VISION_PATH
from splashpy.protocol import LoadProgress
from splashpy.version import __version__

_ANSWER_SECONDS = 10.0  # for the listing; the transfer has huggingface_hub's limits


def cache_directory() -> Path:
    """The Hugging Face cache of this person (``HF_HUB_CACHE``, ``HF_HOME``)."""
    return Path(_constants().HF_HUB_CACHE)


def repository_facts(repo: str, revision: str | None = None) -> RepositoryFacts:
    """Ask the Hub about a repository.

    Args:
        repo: ``OWNER/REPO``.
        revision: branch, tag or commit; None is the default branch.

    Raises:
        ModelUnknownError: no such repository or revision.
        AuthorisationError: gated or private.
        HubError: no answer.
        OfflineError: ``HF_HUB_OFFLINE`` is set.
    """
    api = _hub().HfApi(library_name="splashpy", library_version=__version__)
    with mapped(_asked(repo, revision)):
        info = api.model_info(
            repo, revision=revision, files_metadata=True, timeout=_ANSWER_SECONDS
        )
    listed = {item.rfilename: item.size or 0 for item in info.siblings or ()}
    sizes = {name: size for name, size in listed.items() if not leaves(name)}
    card = info.card_data.to_dict() if info.card_data else {}
    license_id, base = card.get("license"), card.get("base_model")
    if isinstance(base, list) and base:
        base = base[0]
    return RepositoryFacts(
        repo=repo,
        commit=info.sha or "",
        files=tuple((name, sizes[name]) for name in needed_files(sizes)),
        license=license_id if isinstance(license_id, str) else "",
        base_model=base if isinstance(base, str) else "",
        gated=bool(info.gated),
        gguf=tuple(sorted(f for f in sizes.items() if f[0].endswith(".gguf"))),
        vision=tuple((name, sizes[name]) for name in vision_files(sizes)),
    )


def configuration(
    repo: str, revision: str | None = None, name: str = "config.json"
) -> dict[str, Any]:
    """The configuration of a repository, fetched alone; empty when it has none.

    Args:
        repo: ``OWNER/REPO``.
        revision: branch, tag or commit; None is the default branch.
        name: path of the file in the repository.

    Raises:
        The errors of ``repository_facts``.
        IntegrityError, ModelKindError: it is not a JSON object.
    """
    # Not into the cache: a model of which it holds this file alone is a damaged one.
    with mapped(_asked(repo, revision)), TemporaryDirectory() as place:
        hub = _hub()
        try:
            path = hub.hf_hub_download(repo, name, revision=revision, local_dir=place)
        except hub.errors.RemoteEntryNotFoundError:
            return {}
        return read_json(Path(path))


def newest_commit(
    repo: str, revision: str | None = None, *, seconds: float = _ANSWER_SECONDS
) -> str:
    """The commit a branch or tag stands at now.

    Args:
        repo: ``OWNER/REPO``.
        revision: branch, tag or commit; None is the default branch.
        seconds: to wait for an answer.

    Raises:
        ModelUnknownError, AuthorisationError, HubError, OfflineError: no answer.
    """
    api = _hub().HfApi(library_name="splashpy", library_version=__version__)
    with mapped(_asked(repo, revision)):
        return api.model_info(repo, revision=revision, timeout=seconds).sha or ""


def gguf_files(repo: str, revision: str | None = None) -> list[str]:
    """The GGUF files of a repository without a model in safetensors, sorted.

    Raises:
        The errors of ``repository_facts``.
    """
    facts = repository_facts(repo, revision)
    return [] if facts.holds_model else [path for path, _ in facts.gguf]


def snapshot(
    repo: str,
    revision: str | None = None,
    *,
    offline: bool = False,
    cache: Path | None = None,
    progress: Progress = silent,
    cancelled: Cancelled = never,
) -> Path:
    """Download the needed files of a repository, or find them in the cache.

    After an interruption, files that arrived whole are not fetched again. Offline, no
    socket is opened and what the cache has is returned as it is; whether it is
    complete enough to load is for ``ModelDirectory.open`` to say.

    Args:
        repo: ``OWNER/REPO``.
        revision: branch, tag or commit; None is the default branch.
        offline: use the cache only.
        cache: cache directory; None is the person's own.
        progress: phases ``resolve`` and ``download``, in bytes.
        cancelled: polled with every piece of progress.

    Raises:
        ModelUnknownError: no such repository or revision.
        ModelKindError: it holds no model splashpy could read.
        AuthorisationError: gated or private.
        OfflineError: offline and not in the cache.
        HubError, DownloadError: no answer, or the transfer broke.
        DiskSpaceError, PermissionDeniedError: no place for the files.
        CancelledError: ``cancelled`` said yes.
    """
    cache = cache or cache_directory()
    if offline:
        return _from_cache(cache, repo, revision)
    progress(LoadProgress(phase="resolve", item=repo))
    facts = repository_facts(repo, revision)
    refuse_without_model(facts)
    return _download(facts, revision, cache, progress, cancelled)


def gguf_file(
    repo: str,
    file: str,
    revision: str | None,
    *,
    offline: bool,
    progress: Progress,
    cancelled: Cancelled,
) -> Path:
    """Download one GGUF file of a repository, with its card and terms.

    Args:
        repo: ``OWNER/REPO``.
        file: path in the repository.
        revision: branch, tag or commit; None is the default branch.
        offline: use the cache only.
        progress: as for ``snapshot``.
        cancelled: likewise.

    Returns:
        The directory that holds the file by its path.

    Raises:
        ModelUnknownError: no such repository, revision or file.
        SplashError: as ``snapshot``.
    """
    cache = cache_directory()
    if offline:
        return _from_cache(cache, repo, revision, file)
    progress(LoadProgress(phase="resolve", item=repo))
    facts = only_gguf(repository_facts(repo, revision), file)
    return _download(facts, revision, cache, progress, cancelled)


def vision_tower(
    repo: str,
    revision: str | None,
    *,
    offline: bool,
    progress: Progress,
    cancelled: Cancelled,
) -> Path:
    """Download the vision tower of a Splash package beside its other files.

    Args:
        repo: ``OWNER/REPO``.
        revision: branch, tag or commit; None is the default branch.
        offline: use the cache only.
        progress: as for ``snapshot``.
        cancelled: likewise.

    Returns:
        The directory of the package.

    Raises:
        UsageError: the repository has none in a file of its own.
        SplashError: as ``snapshot``.
    """
    cache = cache_directory()
    if offline:
        return _from_cache(cache, repo, revision, VISION_PATH)
    facts = only_vision(repository_facts(repo, revision))
    return _download(facts, revision, cache, progress, cancelled)


def missing_bytes(facts: RepositoryFacts, cache: Path | None = None) -> int:
    """Bytes of the wanted files of a repository that are not in the cache.

    Args:
        facts: name the files.
        cache: cache directory; None is the person's own.
    """
    cache = cache or cache_directory()
    held = hub_cache.find_snapshot(cache, facts.repo, facts.commit)
    return sum(
        size
        for path, size in facts.files
        if held is None or not (held.path / path).is_file()
    )


def delete_revision(
    cache: Path, commit: str, *, dry_run: bool
) -> tuple[int, tuple[tuple[Path, int], ...]]:
    """Delete one revision through huggingface_hub, which keeps what others share.

    Returns:
        Bytes that become free, and (path, bytes) of what goes.
    """
    strategy = _hub().scan_cache_dir(cache).delete_revisions(commit)
    if strategy.repos:
        paths = sorted(strategy.repos)
    else:
        paths = sorted({*strategy.snapshots, *strategy.blobs})
    sized = tuple((path, bytes_below(path)) for path in paths)
    if not dry_run:
        strategy.execute()
    return strategy.expected_freed_size, sized


def _download(
    facts: RepositoryFacts,
    revision: str | None,
    cache: Path,
    progress: Progress,
    cancelled: Cancelled,
) -> Path:
    check_free(facts.repo, (cache, missing_bytes(facts, cache)))
    tally = Tally(facts.size_bytes, facts.repo, progress, cancelled)
    with mapped(_asked(facts.repo, revision)):
        path = _hub().snapshot_download(
            facts.repo,
            revision=revision,
            cache_dir=cache,
            allow_patterns=[glob.escape(name) for name, _ in facts.files],
            library_name="splashpy",
            library_version=__version__,
            tqdm_class=tally.bar_class(),
        )
    return Path(path)


def _hub() -> ModuleType:
    """huggingface_hub, told to send no usage statistics and to write no warnings."""
    import huggingface_hub  # noqa: PLC0415  # costs 0.4 s that offline use never needs

    _constants().HF_HUB_DISABLE_TELEMETRY = True
    huggingface_hub.logging.set_verbosity_error()
    return huggingface_hub


def _constants() -> Any:
    """huggingface_hub's settings, read from the environment when first imported."""
    from huggingface_hub import constants  # noqa: PLC0415  # as above

    return constants


def _asked(repo: str, revision: str | None) -> str:
    return f"{repo}@{revision}" if revision else repo


def _from_cache(cache: Path, repo: str, revision: str | None, file: str = "") -> Path:
    found = hub_cache.find_snapshot(cache, repo, revision)
    if found is None or (file and not (found.path / file).is_file()):
        asked = _asked(repo, revision) + (f":{file}" if file else "")
        raise OfflineError(
            f"{asked} is not on this computer, and offline mode forbids a download",
            fix=[f"splashpy pull {asked}", "splashpy list"],
        )
    return found.path
