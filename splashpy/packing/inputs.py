# SPDX-License-Identifier: Apache-2.0
"""What a person named as TARGET or DRAFT becomes files on this computer."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from splashpy.errors import ModelUnknownError, UsageError
from splashpy.package import hub, names
from splashpy.package.library import Library
from splashpy.package.manifest import FILE_NAME
from splashpy.package.progress import Cancelled, Progress
from splashpy.package.relative_path import problem
from splashpy.package.splash.package import is_splash
from splashpy.paths import Paths

Kind = Literal["checkpoint", "package", "splash", "gguf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Files somebody named.

    Attributes:
        text: as written.
        kind: ``checkpoint`` (a directory as the Hub has them), ``package`` (of
            splashpy), ``splash`` or ``gguf`` (one file).
        path: the directory, or the file.
        repo, revision: where it was downloaded from; empty for what was here.
    """

    text: str
    kind: Kind
    path: Path
    repo: str = ""
    revision: str = ""

    @property
    def name(self) -> str:
        """What a person would call it: the last part of its name."""
        path = os.path.abspath(self.path)  # noqa: PTH100 - keeps links, drops ".."
        last = self.repo.rpartition("/")[2] or Path(path).name
        return last.removesuffix(".gguf")


def resolve(
    text: str,
    revision: str | None,
    paths: Paths,
    *,
    offline: bool,
    progress: Progress,
    cancelled: Cancelled,
) -> Input:
    """Find, and download where needed, what a word means.

    Args:
        text: a directory, a GGUF file, ``OWNER/REPO[@REVISION]``, one GGUF file of it
            (``OWNER/REPO[@REVISION]:FILE``), or an installed name.
        revision: of the repository, instead of one in the word.
        paths: where splashpy keeps its files.
        offline: use only what is on this computer.
        progress: phases ``resolve`` and ``download``.
        cancelled: polled between chunks.

    Raises:
        ModelUnknownError: nothing is called so.
        ModelKindError: it is not something that can be packed.
        SplashError: it cannot be downloaded; as :func:`splashpy.package.hub.snapshot`.
    """
    path = Path(text).expanduser()
    if path.exists():
        return _local(text, path)
    name, file = named_file(text)
    if name.kind == "directory" or (name.kind == "short" and text.endswith(".gguf")):
        raise ModelUnknownError(f"{text}: no such file or directory")
    if name.kind == "short":
        return _local(text, Library(paths).find(text).path)
    wanted = revision or name.revision
    if not file and not offline:
        file = _only_gguf(name.repo, wanted)
    if file:
        folder = hub.gguf_file(
            name.repo,
            file,
            wanted,
            offline=offline,
            progress=progress,
            cancelled=cancelled,
        )
    else:
        folder = hub.snapshot(
            name.repo, wanted, offline=offline, progress=progress, cancelled=cancelled
        )
    found = _local(text, folder / file if file else folder)
    return Input(
        text=text,
        kind=found.kind,
        path=found.path,
        repo=name.repo,
        revision=folder.name,
    )


def named_file(text: str) -> tuple[names.ModelName, str]:
    """The repository, and the GGUF file of it that is meant; empty for all of it.

    Raises:
        UsageError: not the form of a name, or a path that leaves the repository.
    """
    repo, mark, file = text.partition(":")
    if not mark or not file.endswith(".gguf"):
        return names.parse(text), ""
    name = names.parse(repo)
    if name.kind != "hub":
        raise UsageError(f"{text!r}: only OWNER/REPO has files to choose from")
    if reason := problem(file):
        raise UsageError(f"{text!r}: the path of the file {reason}")
    return name, file


def _only_gguf(repo: str, revision: str | None) -> str:
    """The GGUF file of a repository that holds no other model; empty if it does.

    Raises:
        UsageError: there are several, and which is meant is not said.
    """
    files = hub.gguf_files(repo, revision)
    if len(files) > 1:
        raise UsageError(
            f"{repo} has {len(files)} GGUF files",
            why=f"they are {', '.join(files[:8])}",
            fix=[f"{repo}:{files[0]}, for example"],
        )
    return files[0] if files else ""


def _local(text: str, path: Path) -> Input:
    if path.is_file():
        return Input(text=text, kind="gguf", path=path)
    if (path / FILE_NAME).exists():
        return Input(text=text, kind="package", path=path)
    if is_splash(path):
        return Input(text=text, kind="splash", path=path)
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1 and not (path / "config.json").exists():
        return Input(text=text, kind="gguf", path=files[0])
    return Input(text=text, kind="checkpoint", path=path)
