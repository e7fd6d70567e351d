# SPDX-License-Identifier: Apache-2.0
"""What a repository holds, told from the Hub's listing; opens no socket.

Only the files a loader reads are wanted. Of GGUF files a repository may hold many
versions of one model, so one of them is chosen by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from splashpy.errors import ModelKindError, ModelUnknownError, UsageError
from splashpy.package.manifest import FILE_NAME
from splashpy.package.names import how_to_pack
from splashpy.package.splash.manifest import FILE_NAME as SPLASH_FILE_NAME
from splashpy.package.splash.vision_layout import VISION_PATH

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
        base_model: repository the card names as what this one was made from; the
            first of several, empty without one.
        gated: access must be asked for.
        gguf: (path, bytes) of its GGUF files, of which only a chosen one is fetched.
        vision: (path, bytes) of the vision tower of a Splash package, which is fetched
            only when it is asked for.
    """

    repo: str
    commit: str
    files: tuple[tuple[str, int], ...]
    license: str = ""
    base_model: str = ""
    gated: bool = False
    gguf: tuple[tuple[str, int], ...] = ()
    vision: tuple[tuple[str, int], ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of all needed files."""
        return sum(size for _, size in self.files)

    @property
    def holds_model(self) -> bool:
        """Whether it is a model in safetensors or a Splash package."""
        names = {name for name, _ in self.files}
        described = names & {FILE_NAME, "config.json"}
        if described and any(name.endswith(".safetensors") for name in names):
            return True
        return _holds_splash(names)


def needed_files(names: Iterable[str]) -> list[str]:
    """The files of a repository that splashpy reads, sorted."""
    names = set(names)
    if _holds_splash(names):
        return sorted(filter(_is_needed_of_splash, names))
    native = FILE_NAME in names
    return sorted(name for name in names if _is_needed(name, native=native))


def only_gguf(facts: RepositoryFacts, file: str) -> RepositoryFacts:
    """The facts of one GGUF file, with the card and the terms that go with it.

    Raises:
        ModelUnknownError: the repository has no such file.
    """
    sizes = dict(facts.gguf)
    if file not in sizes:
        raise ModelUnknownError(
            f"{facts.repo} has no file {file}",
            why=f"its GGUF files: {', '.join(sizes) or 'none'}",
        )
    texts = [item for item in facts.files if item[0].startswith(_TEXTS)]
    return replace(facts, files=(*texts, (file, sizes[file])))


def vision_files(names: Iterable[str]) -> list[str]:
    """The files of a repository that hold the vision tower of a Splash package."""
    names = set(names)
    return [VISION_PATH] if _holds_splash(names) and VISION_PATH in names else []


def only_vision(facts: RepositoryFacts) -> RepositoryFacts:
    """The facts of the vision tower alone.

    Raises:
        UsageError: there is none, or none in a file of its own.
    """
    if facts.vision:
        return replace(facts, files=facts.vision)
    raise UsageError(
        f"{facts.repo} has no vision tower to fetch",
        why=f"only a Splash package keeps one apart, in {VISION_PATH}",
        fix=["leave --vision out"],
    )


def refuse_without_model(facts: RepositoryFacts) -> None:
    """Refuse what cannot be run as it is.

    Raises:
        ModelKindError: no model in safetensors; of GGUF files it says how to pack one.
    """
    if facts.holds_model:
        return
    if facts.gguf:
        file = facts.gguf[0][0]
        raise ModelKindError(
            f"{facts.repo} holds GGUF files, which are packed before they run",
            why=f"they are {', '.join(path for path, _ in facts.gguf[:8])}",
            fix=how_to_pack(f"{facts.repo}:{file}"),
        )
    raise ModelKindError(
        f"{facts.repo}: no model in safetensors",
        why="supported: packages of splashpy and Splash, and MLX models in safetensors",
    )


def _is_needed(name: str, *, native: bool) -> bool:
    path = PurePosixPath(name)
    if len(path.parts) > 1:
        return native and path.parts[0] in _PACKAGE_FOLDERS
    return path.suffix in _NEEDED_SUFFIXES or name.startswith(_NEEDED_NAMES)


def _holds_splash(names: set[str]) -> bool:
    wanted = {SPLASH_FILE_NAME, "target/head.bin", "draft/model.bin"}
    return wanted <= names and not names & {FILE_NAME, "config.json"}


def _is_needed_of_splash(name: str) -> bool:
    """Not the vision tower, which no text needs."""
    folder, mark, _ = name.rpartition("/")
    if mark:
        return folder in ("target", "draft", "tokenizer")
    return name == SPLASH_FILE_NAME or name.startswith(_NEEDED_NAMES)
