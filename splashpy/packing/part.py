# SPDX-License-Identifier: Apache-2.0
"""``splashpy-part.json``: what a package knew about a part that left it.

``unpack`` writes ordinary directories; the file beside the weights keeps where they
came from and their terms, so that packing them again gives the same package. It holds
as long as the files it lists are unchanged.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splashpy.errors import VersionError
from splashpy.package.components import License, Source, SourceFile
from splashpy.package.fields import Fields, read_json
from splashpy.package.integrity import sha256_file
from splashpy.package.manifest import Manifest, SamplingDefaults, files_digest
from splashpy.package.progress import Cancelled, never
from splashpy.packing.target_files import json_bytes

FILE_NAME = "splashpy-part.json"
LICENSE_NAME = "splashpy-license.txt"

_FORMAT = {"name": "splashpy-part", "version": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A target or a drafter outside a package.

    Attributes:
        name: of the package.
        source, license: as in its manifest; ``license.text`` is beside the file.
        sampling, special, reasoning: of a target.
        trained_for: of a drafter.
        splash: of a target from a Splash package.
        files: the files this holds for.
    """

    name: str
    source: Source
    license: License
    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)
    special: dict[str, int] = field(default_factory=dict)
    reasoning: dict[str, Any] | None = None
    trained_for: tuple[str, str] | None = None
    splash: dict[str, Any] | None = None
    files: tuple[SourceFile, ...] = ()

    @property
    def files_digest(self) -> str:
        """SHA-256 that identifies the files this holds for."""
        return files_digest(self.files)

    @classmethod
    def of_target(cls, manifest: Manifest) -> Part:
        """What a package says about its target."""
        return cls(
            name=manifest.name,
            source=manifest.target.source,
            license=manifest.target.license,
            sampling=manifest.sampling,
            special=manifest.tokens.special,
            reasoning=manifest.reasoning,
            splash=manifest.splash,
        )

    @classmethod
    def of_draft(cls, manifest: Manifest) -> Part | None:
        """What a package says about its drafter; None without one."""
        draft = manifest.draft
        if draft is None:
            return None
        return cls(
            name=manifest.name,
            source=draft.source,
            license=draft.license,
            trained_for=draft.trained_for,
        )

    @classmethod
    def beside(cls, directory: Path, cancelled: Cancelled = never) -> Part | None:
        """What a directory's own file says; None without one, or when files changed.

        Raises:
            VersionError: of another format.
            ModelKindError, IntegrityError: it cannot be understood.
        """
        path = directory / FILE_NAME
        if not path.is_file():
            return None
        part = cls._read(Fields(read_json(path), str(path)))
        return part if _unchanged(directory, part.files, cancelled) else None

    @classmethod
    def _read(cls, fields: Fields) -> Part:
        if fields.data.get("format") != _FORMAT:
            raise VersionError(f"{fields.file}: not a part of this version")
        sampling = fields.optional_object("sampling")
        special = fields.optional_object("special")
        reasoning = fields.optional_object("reasoning")
        splash = fields.optional_object("splash")
        target = fields.optional_object("trained_for")
        return cls(
            name=fields.text("name"),
            source=Source.read(fields.object("source")),
            license=License.read(fields.object("license")),
            sampling=SamplingDefaults.read(sampling)
            if sampling
            else SamplingDefaults(),
            special={key: special.integer(key) for key in special.data}
            if special
            else {},
            reasoning=reasoning.data if reasoning else None,
            trained_for=(target.text("repo_id"), target.text("revision"))
            if target
            else None,
            splash=splash.data if splash else None,
            files=tuple(SourceFile.read(item) for item in fields.objects("files")),
        )

    def write(self, directory: Path, names: list[str]) -> None:
        """Write the file; it holds for the files ``names`` of the directory."""
        listed = tuple(source_file(directory / name, name) for name in names)
        data = dataclasses.asdict(dataclasses.replace(self, files=listed))
        if self.trained_for:
            repo_id, revision = self.trained_for
            data["trained_for"] = {"repo_id": repo_id, "revision": revision}
        content = json_bytes({"format": _FORMAT, **data})
        (directory / FILE_NAME).write_bytes(content)


def source_file(path: Path, name: str, cancelled: Cancelled = never) -> SourceFile:
    """Size and digest of a file."""
    return SourceFile(
        path=name, size=path.stat().st_size, sha256=sha256_file(path, cancelled)
    )


def _unchanged(
    directory: Path, files: tuple[SourceFile, ...], cancelled: Cancelled
) -> bool:
    return all(
        (path := directory / file.path).is_file()
        and path.stat().st_size == file.size
        and sha256_file(path, cancelled) == file.sha256
        for file in files
    )
