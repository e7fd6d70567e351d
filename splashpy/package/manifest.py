# SPDX-License-Identifier: Apache-2.0
"""What splashpy.json may say: the contents page of a native package.

``docs/package-format.md`` is the reference. Reading is strict about what is known
(types, required keys, paths, digests) and indifferent to unknown keys; writing is
deterministic, so equal manifests are equal bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splashpy.errors import IntegrityError, ModelKindError, VersionError
from splashpy.package import relative_path
from splashpy.package.components import (
    Draft,
    SourceFile,
    Target,
    package_path,
    sha256_text,
)
from splashpy.package.fields import Fields, read_json

FILE_NAME = "splashpy.json"
FORMAT_NAME = "splashpy-package"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of the package: size in bytes, digest, and what it is for.

    ``role`` is ``weights``, ``config``, ``tokenizer``, ``license`` or ``other``.
    """

    path: str
    size: int
    sha256: str
    role: str = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Token ids the engine must know.

    Attributes:
        eos_token_ids: tokens that end an answer.
        mask_token_id: fills a draft block; None without a drafter.
        special: other named ids, such as ``bos`` and ``pad``.
    """

    eos_token_ids: tuple[int, ...]
    mask_token_id: int | None = None
    special: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """How the model's makers advise to sample, and where they say so."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    source: str = ""

    @classmethod
    def read(cls, fields: Fields) -> SamplingDefaults:
        """From the object of a manifest or recipe."""
        return cls(
            temperature=fields.number("temperature"),
            top_p=fields.number("top_p"),
            top_k=fields.integer("top_k") if fields.has("top_k") else None,
            source=fields.text("source", default=""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """What target and drafter were checked to share.

    ``token_map_sha256`` is over the ``id<TAB>token`` lines in order of id.
    """

    hidden_size: int
    vocab_size: int
    token_map_sha256: str
    acceptance: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A smoke test: these prompt tokens, greedily continued, on this device."""

    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A whole splashpy.json.

    Attributes:
        name: how people call the package.
        created_with: tool, mlx and mlx-lm versions and the device that computed.
        created_at: UTC, ``2026-01-31T12:00:00Z``; empty where equal inputs shall give
            equal bytes.
        target, draft, pairing: the parts; draft and pairing are None together.
        tokens, sampling, reasoning, check: see their types; ``reasoning`` holds the
            template argument, its values and default.
        files: every file except splashpy.json, sorted by path.
        splash: provenance of an imported Splash package.
    """

    name: str
    created_with: dict[str, str]
    created_at: str = ""
    target: Target
    draft: Draft | None = None
    pairing: Pairing | None = None
    tokens: Tokens
    sampling: SamplingDefaults = SamplingDefaults()
    reasoning: dict[str, Any] | None = None
    check: Check | None = None
    splash: dict[str, Any] | None = None
    files: tuple[FileEntry, ...]

    @property
    def files_digest(self) -> str:
        """SHA-256 that identifies the contents; see :func:`files_digest`."""
        return files_digest(self.files)

    @property
    def size_bytes(self) -> int:
        """Bytes of all listed files."""
        return sum(entry.size for entry in self.files)

    @classmethod
    def open(cls, directory: Path) -> Manifest:
        """Read ``directory/splashpy.json``; raises as ``from_json``."""
        path = directory / FILE_NAME
        return cls.from_json(read_json(path), str(path))

    @classmethod
    def from_json(cls, data: dict[str, Any], file: str = FILE_NAME) -> Manifest:
        """Check and take over a parsed splashpy.json.

        Args:
            data: the JSON object.
            file: how messages call it.

        Raises:
            VersionError: another format, or a newer version of this one.
            ModelKindError: a key is missing or has a wrong type or value.
            IntegrityError: ``files_digest`` does not belong to ``files``.
        """
        fields = Fields(data, file)
        _check_format(fields)
        draft = fields.optional_object("draft")
        pairing = fields.optional_object("pairing")
        sampling = fields.optional_object("sampling")
        if (draft is None) != (pairing is None):
            raise ModelKindError(f"{file}: draft and pairing must be given together")
        manifest = cls(
            name=fields.text("name"),
            created_with=_string_map(fields.object("created_with")),
            created_at=fields.text("created_at", default=""),
            target=Target.read(fields.object("target")),
            draft=Draft.read(draft) if draft else None,
            pairing=_pairing(pairing) if pairing else None,
            tokens=_tokens(fields.object("tokens")),
            sampling=SamplingDefaults.read(sampling)
            if sampling
            else SamplingDefaults(),
            reasoning=_free(fields, "reasoning"),
            check=_check(fields.optional_object("check")),
            splash=_free(fields, "splash"),
            files=_files(fields),
        )
        _check_digest(manifest, fields)
        return manifest

    def to_json(self) -> dict[str, Any]:
        """The JSON object; optional parts that are absent are null."""
        data = dataclasses.asdict(self)
        data["created_at"] = self.created_at or None
        files = data.pop("files")
        if self.draft:
            repo_id, revision = self.draft.trained_for
            data["draft"]["trained_for"] = {"repo_id": repo_id, "revision": revision}
        return {
            "format": {"name": FORMAT_NAME, "version": FORMAT_VERSION},
            **data,
            "files": files,
            "files_digest": self.files_digest,
        }

    def to_bytes(self) -> bytes:
        """The file's content: UTF-8, two spaces, newline at the end."""
        text = json.dumps(self.to_json(), ensure_ascii=False, indent=2)
        return text.encode() + b"\n"


def files_digest(files: Iterable[FileEntry | SourceFile]) -> str:
    """SHA-256 over one ``sha256 path`` line per file, sorted by path."""
    lines = (
        f"{entry.sha256} {entry.path}\n"
        for entry in sorted(files, key=lambda entry: entry.path)
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _check_format(fields: Fields) -> None:
    form = fields.object("format")
    name, version = form.text("name"), form.integer("version")
    if name != FORMAT_NAME:
        raise VersionError(f"{fields.file}: format {name!r} is not {FORMAT_NAME!r}")
    if version != FORMAT_VERSION:
        raise VersionError(
            f"{fields.file}: version {version} of the package format",
            why=f"this splashpy reads version {FORMAT_VERSION}",
            fix=["pip install --upgrade splashpy"],
        )


def _string_map(fields: Fields) -> dict[str, str]:
    return {key: fields.text(key) for key in fields.data}


def _free(fields: Fields, key: str) -> dict[str, Any] | None:
    nested = fields.optional_object(key)
    return nested.data if nested else None


def _tokens(fields: Fields) -> Tokens:
    special = fields.optional_object("special")
    has_mask = fields.has("mask_token_id")
    return Tokens(
        eos_token_ids=fields.integers("eos_token_ids"),
        mask_token_id=fields.integer("mask_token_id") if has_mask else None,
        special={key: special.integer(key) for key in special.data} if special else {},
    )


def _pairing(fields: Fields) -> Pairing:
    return Pairing(
        hidden_size=fields.integer("hidden_size", low=1),
        vocab_size=fields.integer("vocab_size", low=1),
        token_map_sha256=sha256_text(fields, "token_map_sha256"),
        acceptance=_free(fields, "acceptance"),
    )


def _check(fields: Fields | None) -> Check | None:
    if fields is None:
        return None
    return Check(
        prompt_token_ids=fields.integers("prompt_token_ids"),
        token_ids=fields.integers("token_ids"),
        device=fields.text("device"),
    )


def _files(fields: Fields) -> tuple[FileEntry, ...]:
    entries = [
        FileEntry(
            path=package_path(item, "path"),
            size=item.integer("size"),
            sha256=sha256_text(item, "sha256"),
            role=item.text("role", default="other"),
        )
        for item in fields.objects("files")
    ]
    paths = [entry.path for entry in entries]
    if conflict := relative_path.first_conflict([*paths, FILE_NAME]):
        raise ModelKindError(f"{fields.file}: files lists {conflict!r} twice")
    for needed in ("target/config.json", "tokenizer/tokenizer.json"):
        if needed not in paths:
            raise ModelKindError(f"{fields.file}: files does not list {needed}")
    return tuple(sorted(entries, key=lambda entry: entry.path))


def _check_digest(manifest: Manifest, fields: Fields) -> None:
    recorded = sha256_text(fields, "files_digest")
    if recorded != manifest.files_digest:
        raise IntegrityError(
            f"{fields.file}: files_digest does not belong to its list of files",
            why=f"recorded {recorded}, computed {manifest.files_digest}",
        )
