# SPDX-License-Identifier: Apache-2.0
"""From a repository name to a complete folder in the Hugging Face cache.

huggingface_hub does the transfer, so its settings (``HF_TOKEN``, ``HF_HOME``,
``HF_ENDPOINT``, proxies) hold and downloads are shared with other programs. It is
imported inside functions: offline commands never pay for it. Only the files a loader
reads are fetched.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from splashpy.errors import ModelKindError, ModelUnknownError, OfflineError
from splashpy.package import hub_cache
from splashpy.package.disk_space import check_free
from splashpy.package.fields import read_json
from splashpy.package.hub_errors import mapped
from splashpy.package.manifest import FILE_NAME
from splashpy.package.progress import (
    Cancelled,
    CancelledError,
    Progress,
    never,
    silent,
)
from splashpy.package.splash.manifest import FILE_NAME as SPLASH_FILE_NAME
from splashpy.protocol import LoadProgress
from splashpy.version import __version__

_ANSWER_SECONDS = 10.0  # for the listing; the transfer has huggingface_hub's limits
_NEEDED_SUFFIXES = frozenset((".json", ".safetensors", ".jinja", ".txt", ".tiktoken"))
_TEXTS = ("LICENSE", "NOTICE", "README.md")
_NEEDED_NAMES = (*_TEXTS, "tokenizer.model")
_PACKAGE_FOLDERS = frozenset(("target", "draft", "tokenizer", "licenses"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryFacts:
    """What the Hub says about a repository without sending weights.

    Attributes:
        repo: ``OWNER/REPO``.
        commit: 40 hex digits.
        files: (path, bytes) of the files splashpy would download.
        license: identifier from the model card; empty when it names none.
        gated: access must be asked for.
        gguf: (path, bytes) of its GGUF files, of which only a chosen one is fetched.
    """

    repo: str
    commit: str
    files: tuple[tuple[str, int], ...]
    license: str = ""
    gated: bool = False
    gguf: tuple[tuple[str, int], ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of all needed files."""
        return sum(size for _, size in self.files)


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
    sizes = {item.rfilename: item.size or 0 for item in info.siblings or ()}
    card = info.card_data.to_dict() if info.card_data else {}
    license_id = card.get("license")
    return RepositoryFacts(
        repo=repo,
        commit=info.sha or "",
        files=tuple((name, sizes[name]) for name in needed_files(sizes)),
        license=license_id if isinstance(license_id, str) else "",
        gated=bool(info.gated),
        gguf=tuple(sorted(f for f in sizes.items() if f[0].endswith(".gguf"))),
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
    with mapped(_asked(repo, revision)):
        hub = _hub()
        try:
            path = hub.hf_hub_download(repo, name, revision=revision)
        except hub.errors.RemoteEntryNotFoundError:
            return {}
    return read_json(Path(path))


def gguf_files(repo: str, revision: str | None = None) -> list[str]:
    """The GGUF files of a repository without a model in safetensors, sorted.

    Raises:
        The errors of ``repository_facts``.
    """
    facts = repository_facts(repo, revision)
    return [] if _holds_model(facts) else [path for path, _ in facts.gguf]


def needed_files(names: Iterable[str]) -> list[str]:
    """The files of a repository that splashpy reads, sorted."""
    names = set(names)
    if _holds_splash(names):
        return sorted(filter(_is_needed_of_splash, names))
    native = FILE_NAME in names
    return sorted(name for name in names if _is_needed(name, native=native))


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
    _refuse_without_model(facts)
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
    facts = _only(repository_facts(repo, revision), file)
    return _download(facts, revision, cache, progress, cancelled)


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
    sized = tuple((path, _size(path)) for path in paths)
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
    _check_disk(facts, cache)
    tally = _Tally(facts.size_bytes, facts.repo, progress, cancelled)
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


class _Tally:
    """Turns huggingface_hub's progress bars into one count of bytes.

    It draws several bars over the same bytes (received, written); the furthest one is
    reported. A bar is also the place where a wish to stop can be raised.
    """

    def __init__(self, total: int, item: str, progress: Progress, cancelled: Cancelled):
        self._total = total
        self._item = item
        self._progress = progress
        self._cancelled = cancelled
        self._furthest = 0

    def advance(self, count: int) -> None:
        """A bar that counts bytes has reached ``count``."""
        if self._cancelled():
            raise CancelledError
        self._furthest = min(max(self._furthest, count), self._total)
        self._progress(
            LoadProgress(
                phase="download",
                done=self._furthest,
                total=self._total,
                unit="bytes",
                item=self._item,
            )
        )

    def bar_class(self) -> type:
        """A class with as much of tqdm's interface as huggingface_hub uses."""
        tally = self

        class Bar:
            def __init__(self, *_: Any, **options: Any):
                self.counts_bytes = options.get("unit") == "B"
                self.total = options.get("total")
                self.n = options.get("initial", 0)
                self.format_dict: dict[str, Any] = {"rate": None}

            def update(self, count: float | None = 1) -> None:
                self.n += int(count or 0)
                tally.advance(self.n if self.counts_bytes else 0)

            def __enter__(self) -> Bar:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def __getattr__(self, _: str) -> Any:
                return lambda *_, **__: None  # every way to draw: nothing is drawn

        return Bar


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


def _is_needed(name: str, *, native: bool) -> bool:
    path = PurePosixPath(name)
    if len(path.parts) > 1:
        return native and path.parts[0] in _PACKAGE_FOLDERS
    return path.suffix in _NEEDED_SUFFIXES or name.startswith(_NEEDED_NAMES)


def _from_cache(cache: Path, repo: str, revision: str | None, file: str = "") -> Path:
    found = hub_cache.find_snapshot(cache, repo, revision)
    if found is None or (file and not (found.path / file).is_file()):
        asked = _asked(repo, revision) + (f":{file}" if file else "")
        raise OfflineError(
            f"{asked} is not on this computer, and offline mode forbids a download",
            fix=[f"splashpy pull {asked}", "splashpy list"],
        )
    return found.path


def _only(facts: RepositoryFacts, file: str) -> RepositoryFacts:
    """The facts of one GGUF file, with the card and the terms that go with it."""
    sizes = dict(facts.gguf)
    if file not in sizes:
        raise ModelUnknownError(
            f"{facts.repo} has no file {file}",
            why=f"its GGUF files: {', '.join(sizes) or 'none'}",
        )
    texts = [item for item in facts.files if item[0].startswith(_TEXTS)]
    return replace(facts, files=(*texts, (file, sizes[file])))


def _holds_model(facts: RepositoryFacts) -> bool:
    names = {name for name, _ in facts.files}
    described = names & {FILE_NAME, "config.json"}
    if described and any(name.endswith(".safetensors") for name in names):
        return True
    return _holds_splash(names)


def _refuse_without_model(facts: RepositoryFacts) -> None:
    if _holds_model(facts):
        return
    raise ModelKindError(
        f"{facts.repo}: no model in safetensors",
        why="supported: packages of splashpy and Splash, and MLX models in safetensors",
    )


def _holds_splash(names: set[str]) -> bool:
    wanted = {SPLASH_FILE_NAME, "target/head.bin", "draft/model.bin"}
    return wanted <= names and not names & {FILE_NAME, "config.json"}


def _is_needed_of_splash(name: str) -> bool:
    """Not the vision tower, which no text needs."""
    folder, mark, _ = name.rpartition("/")
    if mark:
        return folder in ("target", "draft", "tokenizer")
    return name == SPLASH_FILE_NAME or name.startswith(_NEEDED_NAMES)


def _check_disk(facts: RepositoryFacts, cache: Path) -> None:
    held = hub_cache.find_snapshot(cache, facts.repo, facts.commit)
    missing = facts.size_bytes - (_size(held.path) if held else 0)
    check_free(facts.repo, (cache, max(0, missing)))


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
