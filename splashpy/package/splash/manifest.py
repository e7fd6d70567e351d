# SPDX-License-Identifier: Apache-2.0
"""What manifest.json of a Splash package may say.

It lists the files with size and SHA-256, and names the format. Reading checks all that
Splash's own installer and engine check; unknown keys are accepted, as there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splashpy.errors import ModelKindError, VersionError
from splashpy.package import relative_path
from splashpy.package.components import package_path, sha256_text
from splashpy.package.fields import Fields, read_json
from splashpy.package.manifest import FileEntry
from splashpy.package.splash import formats
from splashpy.package.splash.formats import ALIGNMENT, FORMATS, SplashFormat
from splashpy.package.splash.layout import FileLayout, draft_files, target_files
from splashpy.package.splash.vision_layout import vision_file

FILE_NAME = "manifest.json"

TOKENIZER_FILES = (
    "tokenizer/chat_template.jinja",
    "tokenizer/config.json",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
    "tokenizer/vocab.json",
)

_LARGEST_BYTES = 4 << 20  # the limit of Splash's own engine
_ARTIFACT_KEYS = {"path", "size", "sha256"}
# Not compared: a note nothing reads, and a budget later engines ignore.
_FREE_EXECUTION = {"attention_history_group", "prefill_token_budget"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SplashManifest:
    """A whole manifest.json.

    Attributes:
        model: what people call it.
        row: the format.
        files: every file of the package, by path.
        upstream: where the parts came from, as the packer put it.
        content: the file, byte for byte; empty when it was not read from one.
    """

    model: str
    row: SplashFormat
    files: tuple[FileEntry, ...]
    upstream: Mapping[str, Any] = field(default_factory=dict)
    content: bytes = b""

    @classmethod
    def open(
        cls, directory: Path, table: Mapping[str, SplashFormat] = FORMATS
    ) -> SplashManifest:
        """Read ``directory/manifest.json``.

        Args:
            directory: the package.
            table: formats that are known.

        Raises:
            VersionError: a format, schema or engine this splashpy does not know.
            ModelKindError: a key is missing or has a wrong type or value.
            IntegrityError: not JSON.
        """
        path = directory / FILE_NAME
        if path.is_file() and path.stat().st_size > _LARGEST_BYTES:
            raise ModelKindError(f"{path}: larger than {_LARGEST_BYTES} bytes")
        data = read_json(path)
        return cls.from_json(data, str(path), path.read_bytes(), table)

    @classmethod
    def from_json(
        cls,
        data: dict[str, Any],
        file: str = FILE_NAME,
        content: bytes = b"",
        table: Mapping[str, SplashFormat] = FORMATS,
    ) -> SplashManifest:
        """Check and take over a parsed manifest.json; raises as ``open``."""
        fields = Fields(data, file)
        row = formats.find(fields.object("format").text("name"), file, table)
        _check_format(fields, row)
        _check_geometry(fields, row)
        upstream = fields.optional_object("upstream")
        model = fields.text("model").strip()
        if not model:
            raise ModelKindError(f"{file}: model is blank")
        return cls(
            model=model,
            row=row,
            files=_artifacts(fields, row),
            upstream=upstream.data if upstream else {},
            content=content,
        )

    def to_bytes(self) -> bytes:
        """The file as it was read, else keys and files in order of name."""
        if self.content:
            return self.content
        text = json.dumps(self._document(), ensure_ascii=False, indent=2)
        return text.encode() + b"\n"

    def _document(self) -> dict[str, Any]:
        row = self.row
        document: dict[str, Any] = {
            "artifact_set_sha256": _artifact_set(self.files),
            "artifacts": [
                {"path": entry.path, "sha256": entry.sha256, "size": entry.size}
                for entry in self.files
            ],
            "execution_geometry": dict(sorted(row.execution.items())),
            "format": _format_object(row),
            "model": self.model,
            "schema_version": row.schema,
            "upstream": dict(self.upstream),
        }
        if row.describes_models:
            document["draft"] = formats.manifest_draft(row)
            document["target"] = formats.manifest_target(row)
        return dict(sorted(document.items()))


def weight_files(row: SplashFormat) -> list[FileLayout]:
    """Every file of weights, in the order of a reader."""
    return [*target_files(row), *draft_files(row), vision_file(row)]


def _format_object(row: SplashFormat) -> dict[str, Any]:
    return {
        "draft_layer_magic": formats.DRAFT_MAGIC.decode(),
        "name": row.name,
        **row.quantization,
        "section_alignment_bytes": ALIGNMENT,
        "target_layer_magic": row.layer_magic.decode(),
        "vision_magic": formats.VISION_MAGIC.decode(),
    }


def _check_format(fields: Fields, row: SplashFormat) -> None:
    schema = fields.integer("schema_version")
    if schema != row.schema:
        raise VersionError(
            f"{fields.file}: schema_version {schema} of {row.name}",
            why=f"splashpy reads schema {row.schema} of that format",
        )
    _compare(fields.object("format"), _format_object(row))


def _check_geometry(fields: Fields, row: SplashFormat) -> None:
    execution = fields.object("execution_geometry")
    for key, value in row.execution.items():
        if key not in _FREE_EXECUTION and execution.integer(key, low=1) != value:
            raise VersionError(
                f"{fields.file}: execution_geometry.{key} is {execution.data[key]}",
                why=f"splashpy reads packages where it is {value}",
            )
    if row.describes_models:
        _compare(fields.object("target"), formats.manifest_target(row))
        _compare(fields.object("draft"), formats.manifest_draft(row))


def _compare(fields: Fields, expected: Mapping[str, Any]) -> None:
    """Every expected key with exactly its value, JSON type included."""
    for key, value in expected.items():
        found = fields.data.get(key)
        if type(found) is not type(value) or _typed(found) != _typed(value):
            raise VersionError(
                f"{fields.file}: {fields.prefix}.{key} is {_short(found)}",
                why=f"the format has {_short(value)}",
            )


def _typed(value: Any) -> Any:
    # 1 == True == 1.0 in Python, and none of them is another in JSON.
    return [(type(item), item) for item in value] if isinstance(value, list) else value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _artifacts(fields: Fields, row: SplashFormat) -> tuple[FileEntry, ...]:
    entries = []
    for item in fields.objects("artifacts"):
        if set(item.data) != _ARTIFACT_KEYS:
            raise ModelKindError(
                f"{fields.file}: {item.prefix} must have exactly the keys "
                f"{', '.join(sorted(_ARTIFACT_KEYS))}"
            )
        path, size = package_path(item, "path"), item.integer("size", low=1)
        if path.endswith(".bin") and size % ALIGNMENT:
            raise ModelKindError(
                f"{fields.file}: {path} has {size} bytes, not a multiple of {ALIGNMENT}"
            )
        digest = sha256_text(item, "sha256")
        entries.append(FileEntry(path=path, size=size, sha256=digest))
    paths = [entry.path for entry in entries]
    if conflict := relative_path.first_conflict([*paths, FILE_NAME]):
        raise ModelKindError(f"{fields.file}: artifacts lists {conflict!r} twice")
    _check_complete(fields.file, row, {entry.path: entry.size for entry in entries})
    return tuple(sorted(entries, key=lambda entry: entry.path))


def _check_complete(file: str, row: SplashFormat, sizes: Mapping[str, int]) -> None:
    for path in TOKENIZER_FILES:
        if path not in sizes:
            raise ModelKindError(f"{file}: artifacts does not list {path}")
    for layout in weight_files(row):
        size = sizes.get(layout.path)
        if size is None:
            raise ModelKindError(f"{file}: artifacts does not list {layout.path}")
        if size != layout.num_bytes:
            raise ModelKindError(
                f"{file}: {layout.path} has {size} bytes",
                why=f"in {row.name} it has {layout.num_bytes}",
            )


def _artifact_set(files: Iterable[FileEntry]) -> str:
    lines = (f"{entry.sha256}  {entry.path}\n" for entry in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
