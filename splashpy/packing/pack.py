# SPDX-License-Identifier: Apache-2.0
"""A target and a drafter, wherever they are, become a package.

Nothing is read before the terms of both parts, their fit and the disk have been looked
at. The work happens in ``DIR.partial``: a finished file stays there, so the same call
goes on where an interrupted one stopped. The directory gets its name in the last step.
Equal inputs give equal bytes on every computer; the self-check is the one part that is
measured, and its figures depend on the device alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splashpy.dialogue.template import ChatTemplate
from splashpy.errors import SplashError
from splashpy.package import components
from splashpy.package.components import Quantization
from splashpy.package.fields import Fields
from splashpy.package.manifest import FILE_NAME, Manifest, Tokens
from splashpy.package.model_directory import context_max, read_sizes
from splashpy.package.progress import Cancelled, Progress, never, silent
from splashpy.package.splash.formats import FORMATS, SplashFormat
from splashpy.packing.build import check_output, hashed_files, quantization_of
from splashpy.packing.draft_part import check_pair, describe_draft
from splashpy.packing.draft_plan import PlannedDraft
from splashpy.packing.gather import Draft, Target, Work, gather_draft, gather_target
from splashpy.packing.inputs import Input
from splashpy.packing.readme import readme
from splashpy.packing.resumable import check_room, resumable
from splashpy.packing.self_check import PROMPT, SelfCheck, self_check, too_large
from splashpy.packing.target_files import json_bytes
from splashpy.packing.target_plan import PackingWish, PlannedTarget
from splashpy.packing.terms import refuse_derivative
from splashpy.version import __version__

OLDEST_MLX_LM = "0.32.2"
"""The oldest mlx-lm splashpy itself runs with."""

_OTHER_FILES_BYTES = 64 << 20  # tokenizer, licences, manifest: more than any has


@dataclass(frozen=True, slots=True, kw_only=True)
class PackWish:
    """What a person wants packed.

    Attributes:
        target, draft: the parts; None packs a target without a drafter.
        output: directory of the package.
        name: of the package; empty leaves it to the target.
        packing: of the target.
        draft_bits: of the drafter; None keeps what it has.
        accepted: licences that forbid changed copies and were consented to.
        check: decode a prompt at the end.
        force: replace a package that is there.
        formats: Splash formats that are known.
    """

    target: Input
    draft: Input | None
    output: Path
    name: str = ""
    packing: PackingWish = dataclasses.field(default_factory=PackingWish)
    draft_bits: int | None = None
    accepted: tuple[str, ...] = ()
    check: bool = True
    force: bool = False
    formats: Mapping[str, SplashFormat] = dataclasses.field(
        default_factory=lambda: FORMATS
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PackPlan:
    """What ``pack`` will do, checked as far as it can be without writing.

    Attributes:
        wish: what was asked for.
        target, draft: gathered.
        num_bytes: of the weights.
        notes: what a person should know.
    """

    wish: PackWish
    target: Target
    draft: Draft | None
    num_bytes: int
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of the package."""
        return self.wish.name or self.target.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A finished package.

    Attributes:
        path: the directory.
        manifest: its splashpy.json.
        check: what the self-check found; None when there was none.
        notes: what a person should know.
    """

    path: Path
    manifest: Manifest
    check: SelfCheck | None
    notes: tuple[str, ...]


def plan_pack(
    wish: PackWish, progress: Progress = silent, cancelled: Cancelled = never
) -> PackPlan:
    """Look at the parts, their terms and their fit, and at the place for the result.

    Raises:
        UsageError: terms that forbid it, a wish that makes no sense, or a directory
            that is there already.
        PairError: target and drafter do not belong together.
        DiskSpaceError: not enough room.
        SplashError: a part cannot be packed.
    """
    check_output(wish.output, force=wish.force)
    work = Work(progress, cancelled, wish.formats)
    target = gather_target(wish.target, wish.packing, work)
    draft = gather_draft(wish.draft, wish.draft_bits, work) if wish.draft else None
    if target.plan.changed:
        refuse_derivative("target", target.terms, wish.accepted)
    num_bytes = target.plan.shards.num_bytes
    if draft:
        if draft.plan.changed:
            refuse_derivative("draft", draft.terms, wish.accepted)
        check_pair(Fields(draft.plan.config, "the drafter"), target.plan.config)
        num_bytes += draft.plan.shards.num_bytes
    needed = num_bytes + _OTHER_FILES_BYTES
    check_room(wish.output, needed)
    notes = _notes(target, draft)
    return PackPlan(
        wish=wish, target=target, draft=draft, num_bytes=num_bytes, notes=notes
    )


def pack(
    plan: PackPlan, progress: Progress = silent, cancelled: Cancelled = never
) -> Packed:
    """Write the package.

    Args:
        plan: of :func:`plan_pack`; it can be used once.
        progress: phases ``prepare``, ``verify`` and those of loading.
        cancelled: polled between tensors.

    Raises:
        ModelKindError: a weight is no number, or the package does not load.
        DiskSpaceError, PermissionDeniedError: it cannot be written.
        CancelledError: ``cancelled`` said yes; the same call goes on from there.
    """
    output = plan.wish.output.absolute()
    with resumable(output, fingerprint(plan), progress, cancelled) as partial:
        manifest = _write(plan, partial, progress, cancelled)
        check, notes = None, plan.notes
        if plan.wish.check:
            manifest, check, more = _checked(partial, manifest, progress, cancelled)
            notes += more
    return Packed(path=output, manifest=manifest, check=check, notes=notes)


def _notes(target: Target, draft: Draft | None) -> tuple[str, ...]:
    parts = [("target", target.terms)] + ([("draft", draft.terms)] if draft else [])
    return tuple(
        f"the {part}'s licence {terms.spdx} does not say that copies may be passed on; "
        "read it before you publish the package"
        for part, terms in parts
        if terms.redistribution != "allowed"
    )


def fingerprint(plan: PackPlan) -> str:
    """Identifies everything the files of a package depend on."""
    target, draft = plan.target, plan.draft
    parts: list[Any] = [__version__, plan.name, dict(target.plan.shards.entries)]
    parts += [target.plan.config, target.origin.identity]
    if draft:
        parts += [dict(draft.plan.shards.entries), draft.plan.config]
        parts += [draft.origin.identity]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _write(
    plan: PackPlan, folder: Path, progress: Progress, cancelled: Cancelled
) -> Manifest:
    target, draft = plan.target, plan.draft
    for part in (target, draft):
        if part is not None:
            part.origin.begin()
    _write_part(folder / "target", target.plan, progress, cancelled)
    _write_files(folder / "tokenizer", target.plan.tokenizer)
    licenses = {"target.txt": target.terms.text}
    if draft:
        _write_part(folder / "draft", draft.plan, progress, cancelled)
        licenses["draft.txt"] = draft.terms.text
    _write_files(folder / "licenses", licenses)
    manifest = _manifest(plan, folder)
    (folder / "README.md").write_text(readme(plan.name, manifest), encoding="utf-8")
    files = hashed_files(folder, progress, cancelled)
    manifest = dataclasses.replace(manifest, files=files)
    (folder / FILE_NAME).write_bytes(manifest.to_bytes())
    return manifest


def _write_part(
    folder: Path,
    plan: PlannedTarget | PlannedDraft,
    progress: Progress,
    cancelled: Cancelled,
) -> None:
    folder.mkdir(exist_ok=True)
    _write_files(folder, {"config.json": json_bytes(plan.config), **plan.others})
    plan.shards.write(folder, progress, cancelled)


def _write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _manifest(plan: PackPlan, folder: Path) -> Manifest:
    target, draft = plan.target, plan.draft
    manifest = Manifest(
        name=plan.name,
        created_with={
            "tool": f"splashpy {__version__}",
            "mlx": importlib.metadata.version("mlx"),
            "mlx_lm": importlib.metadata.version("mlx-lm"),
            "device": "any",  # the quantizer gives the same bytes everywhere
        },
        target=_target(target),
        tokens=Tokens(
            eos_token_ids=target.plan.eos_token_ids, special=dict(target.special)
        ),
        sampling=target.sampling,
        reasoning=target.reasoning or _reasoning(folder / "tokenizer"),
        splash=target.splash,
        files=(),
    )
    if draft is None:
        return manifest
    terms = draft.terms.as_license("licenses/draft.txt")
    described, pairing, mask = describe_draft(
        folder, draft.trained_for, draft.origin.source, terms
    )
    tokens = dataclasses.replace(manifest.tokens, mask_token_id=mask)
    return dataclasses.replace(
        manifest, draft=described, pairing=pairing, tokens=tokens
    )


def _target(target: Target) -> components.Target:
    config = target.plan.config
    hidden_size, num_layers, vocab_size = read_sizes(Fields(config, "config.json"))
    return components.Target(
        model_type=config["model_type"],
        mlx_lm=OLDEST_MLX_LM,
        hidden_size=hidden_size,
        num_hidden_layers=num_layers,
        vocab_size=vocab_size,
        max_context=context_max(config),
        cache_kinds=target.plan.cache_kinds,
        quantization=_packing(config),
        source=target.origin.source,
        license=target.terms.as_license("licenses/target.txt"),
    )


def _packing(config: Mapping[str, Any]) -> Quantization | None:
    return quantization_of(config.get("quantization"))


def _reasoning(tokenizer: Path) -> dict[str, Any] | None:
    """Which efforts the chat template distinguishes; None when it has no say."""
    try:
        scale = ChatTemplate.from_directory(tokenizer).effort
    except SplashError:
        return None  # a template that fails is reported when it is used
    if not scale.levels:
        return None
    options = {level: dict(chosen) for level, chosen in scale.options.items()}
    return {"levels": list(scale.levels), "default": scale.default, "options": options}


def _checked(
    folder: Path, manifest: Manifest, progress: Progress, cancelled: Cancelled
) -> tuple[Manifest, SelfCheck | None, tuple[str, ...]]:
    """Decode with what was written; the manifest gets what was found."""
    packed = manifest.target.quantization
    reason = too_large(manifest.size_bytes, bits=packed.bits if packed else 16)
    if reason:
        return manifest, None, (f"no self-check: {reason}",)
    found = self_check(folder, progress, cancelled)
    notes = ()
    if found.first_difference is not None:
        notes = (
            f"decoding with drafts differs from decoding without at token "
            f"{found.first_difference}; splashpy verify {folder.name} tells whether "
            "that is a tie",
        )
    pairing = manifest.pairing
    if pairing and found.cycles:
        pairing = dataclasses.replace(
            pairing,
            acceptance={
                "prompt": PROMPT,
                "sampling": "greedy",
                "tokens": found.tokens,
                "cycles": found.cycles,
                "acceptance_length": found.acceptance_length,
            },
        )
    manifest = dataclasses.replace(manifest, check=found.check, pairing=pairing)
    (folder / FILE_NAME).write_bytes(manifest.to_bytes())
    return manifest, found, notes
