# SPDX-License-Identifier: Apache-2.0
"""What a person may write for MODEL, and the built-in short names.

MODEL is a repository (``OWNER/REPO`` or ``OWNER/REPO@REVISION``), a local directory
(``./x``, ``../x``, ``/x``, ``~/x``), or a short name. Nothing here touches a disk.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from splashpy.errors import ModelUnknownError, UsageError

_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,254}", re.ASCII)


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model with a short name.

    Attributes:
        name: the short name.
        recipe: folder under ``packages/`` it is built from; empty when it is
            downloaded.
        repo: repository it is downloaded from; empty when it is built.
        about: one line for a list.
    """

    name: str
    recipe: str = ""
    repo: str = ""
    about: str = ""


KNOWN: tuple[KnownModel, ...] = (
    KnownModel("demo", recipe="smollm2-135m", about="SmolLM2-135M-Instruct, 98 MB"),
    KnownModel(
        "qwen3.8-27b",
        repo="incoai/Qwen3.8-27B-Splash",
        about="Qwen3.8-27B with its DFlash 2 drafter",
    ),
    KnownModel(
        "qwen3.6-35b-a3b",
        repo="incoai/Qwen3.6-35B-A3B-Splash",
        about="Qwen3.6-35B-A3B with its DFlash 2 drafter",
    ),
)

DEFAULT = "demo"
"""The model meant when nobody chose one."""


@dataclass(frozen=True, slots=True)
class ModelName:
    """A MODEL argument, taken apart.

    Attributes:
        text: as written.
        kind: ``directory`` (see ``path``), ``hub`` (see ``repo`` and ``revision``) or
            ``short`` (see :func:`known`).
        path: the directory, with ``~`` expanded; only for ``directory``.
        repo: ``OWNER/REPO``; only for ``hub``.
        revision: branch, tag or commit; None means the repository's default branch.
    """

    text: str
    kind: Literal["directory", "hub", "short"]
    path: Path | None = None
    repo: str = ""
    revision: str | None = None


def parse(text: str) -> ModelName:
    """Take a MODEL argument apart.

    Raises:
        UsageError: empty, or neither a path, a repository nor a possible short name.
    """
    if text in (".", "..") or text.startswith(("./", "../", "/", "~")):
        return ModelName(text, "directory", path=Path(text).expanduser())
    if "/" not in text:
        if not text.strip() or "@" in text:
            raise _malformed(text)
        return ModelName(text, "short")
    repo, mark, revision = text.partition("@")
    good_revision = _REVISION.fullmatch(revision) and ".." not in revision
    if not _REPO.fullmatch(repo) or (mark and not good_revision):
        raise _malformed(text)
    return ModelName(text, "hub", repo=repo, revision=revision or None)


def known(name: str) -> KnownModel | None:
    """The built-in model with this short name or recipe, in any case."""
    wanted = name.lower()
    return next((item for item in KNOWN if wanted in (item.name, item.recipe)), None)


def how_to_pack(gguf: str) -> list[str]:
    """The commands that make a package of a GGUF file and run it.

    Args:
        gguf: a path, or ``OWNER/REPO[@REVISION]:FILE``.
    """
    folder = f"./{PurePosixPath(gguf.rpartition(':')[2]).stem}"
    return [
        shlex.join(["splashpy", "pack", gguf, "-o", folder]),
        shlex.join(["splashpy", "run", folder, "-p", "Hello."]),
    ]


def unknown(text: str, names: Iterable[str]) -> ModelUnknownError:
    """The error for a name nobody has, with the nearest three of ``names``."""
    nearest = difflib.get_close_matches(text.lower(), sorted(set(names)), 3, cutoff=0)
    return ModelUnknownError(
        f"no model is called {text!r}",
        why=f"nearest names: {', '.join(nearest)}" if nearest else "",
        fix=["splashpy list --all"],
    )


def _malformed(text: str) -> UsageError:
    return UsageError(
        f"{text!r} is not a model",
        why="a model is OWNER/REPO, OWNER/REPO@REVISION, a directory such as ./model, "
        "or a short name",
        fix=["splashpy list --all"],
    )
