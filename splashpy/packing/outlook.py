# SPDX-License-Identifier: Apache-2.0
"""What a model will need, told from names, sizes and configurations alone.

Of a repository that is the Hub's listing and one or two files of a few kilobytes; no
weight is fetched or read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splashpy.errors import PackageError
from splashpy.package import hub
from splashpy.package.fields import read_json
from splashpy.package.library import Library
from splashpy.package.repository import RepositoryFacts, only_gguf
from splashpy.package.splash.manifest import FILE_NAME as SPLASH_FILE_NAME
from splashpy.packing.inputs import named_file
from splashpy.packing.memory_verdict import (
    Weights,
    gguf_bits,
    loaded_bytes,
    stored_bits,
)
from splashpy.packing.terms import card_fields
from splashpy.paths import Paths

SPLASH_BITS = 4.5
"""Of a weight in a Splash package."""

_CONFIGURATIONS = ("config.json", "target/config.json", "tokenizer/config.json")

Files = Sequence[tuple[str, int]]
"""Path and size."""

Read = Callable[[str], dict[str, Any]]
"""Gives a JSON file of the model by its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """A model nobody has loaded.

    Attributes:
        config: the target's config.json; empty where it is not a file of its own.
        target: its weights.
        draft: weights of the drafter it brings; None without one.
        base_model: repository its makers name as what it was made from; may be empty.
        download_bytes: of the files that are not on this computer.
    """

    config: Mapping[str, Any]
    target: Weights
    draft: Weights | None = None
    base_model: str = ""
    download_bytes: int = 0

    @property
    def parts(self) -> tuple[Weights, ...]:
        """Weights of target and drafter."""
        return (self.target, self.draft) if self.draft else (self.target,)


def look(
    text: str, revision: str | None, paths: Paths, *, offline: bool
) -> Outlook | None:
    """Look at what ``splashpy pack`` is given as TARGET or DRAFT.

    Args:
        text: a path, an installed name, or a repository or a file of one.
        revision: of the repository, instead of one in the word.
        paths: where splashpy keeps its files.
        offline: ask nobody.

    Returns:
        None for what cannot be looked at; reading it will say why.

    Raises:
        SplashError: as :func:`splashpy.package.hub.repository_facts`.
    """
    path = Path(text).expanduser()
    try:
        if path.exists():
            return of_directory(path)
        name, file = named_file(text)
        if name.kind == "short":
            return of_directory(Library(paths).find(text).path)
    except PackageError:
        return None
    if name.kind != "hub" or offline:
        return None
    facts = hub.repository_facts(name.repo, revision or name.revision)
    if not file and not facts.holds_model and len(facts.gguf) == 1:
        file = facts.gguf[0][0]
    return of_repository(only_gguf(facts, file) if file else facts)


def of_repository(facts: RepositoryFacts) -> Outlook:
    """Look at a repository; its configurations are fetched.

    Raises:
        SplashError: as :func:`splashpy.package.hub.configuration`.
    """

    def read(name: str) -> dict[str, Any]:
        return hub.configuration(facts.repo, facts.commit, name)

    missing = hub.missing_bytes(facts)
    return _of_files(facts.files, read, facts.base_model, missing)


def of_directory(path: Path) -> Outlook:
    """Look at a directory or at a GGUF file.

    Raises:
        PackageError: a configuration cannot be read.
    """
    if path.is_file():
        file = path.name, path.stat().st_size
        return _of_files([file], lambda _: {}, "", 0)
    files = [
        (file.relative_to(path).as_posix(), file.stat().st_size)
        for file in path.rglob("*")
        if file.is_file()
    ]
    base_model = card_fields(path / "README.md").get("base_model", "")
    return _of_files(files, lambda name: read_json(path / name), base_model, 0)


def _of_files(
    files: Files, read: Read, base_model: str, download_bytes: int
) -> Outlook:
    names = {path for path, _ in files}
    found = next((name for name in _CONFIGURATIONS if name in names), None)
    config = read(found) if found else {}
    draft = [item for item in files if item[0].startswith("draft/")]
    target = [item for item in files if item not in draft]
    bits = stored_bits(config)
    draft_bits = bits
    if SPLASH_FILE_NAME in names and "target/head.bin" in names:
        bits = draft_bits = SPLASH_BITS
    elif "draft/config.json" in names:
        draft_bits = stored_bits(read("draft/config.json"))
    gguf = next((path for path in names if path.endswith(".gguf")), None)
    if gguf and not found:
        bits = gguf_bits(gguf)
    return Outlook(
        config=config,
        target=Weights(loaded_bytes(target), bits),
        draft=Weights(loaded_bytes(draft), draft_bits) if draft else None,
        base_model=base_model,
        download_bytes=download_bytes,
    )
