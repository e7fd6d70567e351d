# SPDX-License-Identifier: Apache-2.0
"""From what a person named to planned parts with their origin and terms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splashpy.errors import ModelKindError
from splashpy.package.components import SourceFile
from splashpy.package.fields import Fields
from splashpy.package.integrity import check_files
from splashpy.package.manifest import Manifest, SamplingDefaults, files_digest
from splashpy.package.model_directory import ModelDirectory
from splashpy.package.progress import Cancelled, Progress
from splashpy.package.splash.formats import FORMATS, SplashFormat
from splashpy.package.splash.layout import draft_files
from splashpy.package.splash.package import SplashPackage
from splashpy.package.splash.tensors import SplashTensors
from splashpy.packing.draft_plan import PlannedDraft, plan_draft, plan_draft_tensors
from splashpy.packing.gguf import plan_gguf
from splashpy.packing.gguf_draft import plan_gguf_draft
from splashpy.packing.inputs import Input
from splashpy.packing.origin import Origin, as_source
from splashpy.packing.part import LICENSE_NAME, Part
from splashpy.packing.target_plan import (
    PackingWish,
    PlannedTarget,
    plan_checkpoint,
    plan_splash,
)
from splashpy.packing.terms import Terms, card_fields, read_terms

UNKNOWN_TARGET = ("unknown", "unknown")


@dataclass(frozen=True, slots=True)
class Work:
    """What gathering needs: reports, a wish to stop, and the known Splash formats."""

    progress: Progress
    cancelled: Cancelled
    formats: Mapping[str, SplashFormat] = field(default_factory=lambda: FORMATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target and what is known about it.

    Attributes:
        plan: what will be written.
        name: what a package of it is called when nobody says otherwise.
        origin, terms: where it came from and under which terms.
        sampling, reasoning, splash: for the manifest.
        special: named token ids.
    """

    plan: PlannedTarget
    name: str
    origin: Origin
    terms: Terms
    sampling: SamplingDefaults
    reasoning: dict[str, Any] | None = None
    splash: dict[str, Any] | None = None
    special: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A drafter and what is known about it."""

    plan: PlannedDraft
    origin: Origin
    terms: Terms
    trained_for: tuple[str, str]


def gather_target(given: Input, wish: PackingWish, work: Work) -> Target:
    """Plan a target and find its origin.

    Raises:
        SplashError: it cannot be packed; as the functions of ``target_plan``.
    """
    if given.kind == "splash":
        return _splash_target(given, wish, work)
    if given.kind == "gguf":
        plan = plan_gguf(given.path, wish)
        return _plain_target(given, plan, given.path.parent, [given.path], work)
    content = ""
    if given.kind == "package":
        manifest = _checked(given.path, work)
        part, content = Part.of_target(manifest), manifest.files_digest
        terms = _terms_of(part, given.path / part.license.text)
    else:
        part = Part.beside(given.path, work.cancelled)
        terms = _terms_of(part, given.path / LICENSE_NAME)
    directory = ModelDirectory.open(given.path)
    plan = plan_checkpoint(directory, wish)
    if part is None or terms is None:
        return _plain_target(given, plan, given.path, _read_files(given.path), work)
    return Target(
        plan=plan,
        name=part.name,
        origin=Origin.known(part.source, content or part.files_digest),
        terms=terms,
        sampling=part.sampling,
        reasoning=part.reasoning,
        splash=part.splash,
        special=part.special,
    )


def gather_draft(given: Input, bits: int | None, work: Work) -> Draft:
    """Plan a drafter and find its origin.

    Raises:
        ModelKindError: a package without a drafter, or no drafter at all.
        SplashError: it cannot be packed; as the functions of ``draft_plan``.
    """
    if given.kind == "splash":
        return _splash_draft(given, bits, work)
    if given.kind == "gguf":
        return Draft(
            plan=plan_gguf_draft(given.path, bits),
            origin=Origin.of_files(given, [given.path], work.cancelled),
            terms=read_terms(given.path.parent, given.repo),
            trained_for=UNKNOWN_TARGET,
        )
    directory, content = given.path, ""
    if given.kind == "package":
        manifest = _checked(given.path, work)
        part, content = Part.of_draft(manifest), manifest.files_digest
        if part is None:
            raise ModelKindError(f"{given.text} is a package without a drafter")
        terms = _terms_of(part, given.path / part.license.text)
        directory = given.path / "draft"
    else:
        part = Part.beside(given.path, work.cancelled)
        terms = _terms_of(part, given.path / LICENSE_NAME)
    plan = plan_draft(directory, bits)
    if part is None or terms is None:
        base = card_fields(directory / "README.md").get("base_model")
        return Draft(
            plan=plan,
            origin=Origin.of_files(given, _read_files(directory), work.cancelled),
            terms=read_terms(directory, given.repo),
            trained_for=(base, "unknown") if base else UNKNOWN_TARGET,
        )
    return Draft(
        plan=plan,
        origin=Origin.known(part.source, content or part.files_digest),
        terms=terms,
        trained_for=part.trained_for or UNKNOWN_TARGET,
    )


def _plain_target(
    given: Input, plan: PlannedTarget, directory: Path, files: list[Path], work: Work
) -> Target:
    return Target(
        plan=plan,
        name=given.name,
        origin=Origin.of_files(given, files, work.cancelled),
        terms=read_terms(directory, given.repo),
        sampling=_sampling(plan.tokenizer),
        special=plan.special,
    )


def _splash_target(given: Input, wish: PackingWish, work: Work) -> Target:
    package = _checked_splash(given, work)
    config = (package.path / "tokenizer" / "config.json").read_text(encoding="utf-8")
    plan = plan_splash(package, wish)
    temperature, top_p, top_k = package.manifest.row.sampling
    return Target(
        plan=plan,
        name=given.name,
        origin=_splash_origin(given, package),
        terms=read_terms(package.path, given.repo),
        sampling=SamplingDefaults(
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            source=f"makers of the models of {package.manifest.row.name}",
        ),
        splash={
            "manifest": package.manifest.content.decode(),
            "config": config,
            "repo_id": given.repo,
            "revision": given.revision,
        },
        special=plan.special,
    )


def _splash_draft(given: Input, bits: int | None, work: Work) -> Draft:
    package = _checked_splash(given, work)
    tensors = SplashTensors(package.path, draft_files(package.manifest.row))
    plan = plan_draft_tensors(
        package.draft_config(), tensors, tensors.entries, bits, given.text
    )
    upstream = package.manifest.upstream.get("target")
    origin = Fields(upstream if isinstance(upstream, dict) else {}, "upstream")
    return Draft(
        plan=plan,
        origin=_splash_origin(given, package),
        terms=read_terms(package.path, given.repo),
        trained_for=(
            origin.text("repo_id", default="") or "unknown",
            origin.text("revision", default="") or "unknown",
        ),
    )


def _checked_splash(given: Input, work: Work) -> SplashPackage:
    package = SplashPackage.open(given.path, work.formats)
    package.check_digests(work.progress, work.cancelled)
    return package


def _checked(path: Path, work: Work) -> Manifest:
    manifest = Manifest.open(path)
    check_files(
        path, manifest, full=True, progress=work.progress, cancelled=work.cancelled
    )
    return manifest


def _terms_of(part: Part | None, text: Path) -> Terms | None:
    if part is None or not text.is_file():
        return None
    return Terms(
        spdx=part.license.spdx,
        text=text.read_bytes(),
        url=part.license.url,
        redistribution=part.license.redistribution,
    )


def _read_files(directory: Path) -> list[Path]:
    """The files of a checkpoint a packer reads."""
    suffixes = (".json", ".safetensors", ".jinja", ".txt", ".model")
    return sorted(
        path
        for path in directory.iterdir()
        if path.is_file() and path.suffix in suffixes
    )


def _splash_origin(given: Input, package: SplashPackage) -> Origin:
    files = package.manifest.files
    listed = [SourceFile(path=f.path, size=f.size, sha256=f.sha256) for f in files]
    return Origin.known(as_source(given, tuple(listed)), files_digest(files))


def _sampling(tokenizer: Mapping[str, bytes]) -> SamplingDefaults:
    """What generation_config.json advises."""
    name = "generation_config.json"
    content = tokenizer.get(name)
    if content is None:
        return SamplingDefaults()
    fields = Fields(json.loads(content), name)
    if fields.data.get("do_sample") is False:
        return SamplingDefaults(temperature=0.0, source=name)
    temperature, top_p = fields.number("temperature"), fields.number("top_p")
    top_k = fields.integer("top_k") if fields.has("top_k") else None
    if (temperature, top_p, top_k) == (None, None, None):
        return SamplingDefaults()
    return SamplingDefaults(
        temperature=temperature, top_p=top_p, top_k=top_k, source=name
    )
