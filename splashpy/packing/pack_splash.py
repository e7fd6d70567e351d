# SPDX-License-Identifier: Apache-2.0
"""A target and a drafter become a Splash package, byte for byte as Splash's own.

Only models of a known format's sizes can: the format is named, not described. Parts
that came out of a Splash package go back unchanged, its manifest included.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from splashpy.errors import IntegrityError, ModelKindError, PairError, UsageError
from splashpy.package.components import Source
from splashpy.package.fields import Fields
from splashpy.package.progress import Cancelled, Progress, never, silent
from splashpy.package.splash.formats import SplashFormat
from splashpy.package.splash.header import check_image
from splashpy.package.splash.layout import FileLayout, draft_files, target_files
from splashpy.package.splash.manifest import (
    TOKENIZER_FILES,
    SplashManifest,
    weight_files,
)
from splashpy.package.splash.package import draft_config
from splashpy.package.splash.tensors import SplashTensors
from splashpy.package.splash.vision_layout import VISION_PATH, vision_file
from splashpy.package.weights.safetensors_file import Checkpoint, Entry
from splashpy.package.weights.tensor import Tensor
from splashpy.packing.draft_part import vocabulary
from splashpy.packing.pack import PackPlan, fingerprint
from splashpy.packing.resumable import check_room, resumable
from splashpy.packing.splash_files import Give, SplashParts, write_splash
from splashpy.packing.target_files import json_bytes
from splashpy.packing.target_plan import SPLASH_EXTRA

_VISION_PREFIX = "vision_tower."
_PATCHES = "patch_embed.proj.weight"


def pack_splash(
    plan: PackPlan,
    vision: Path | None,
    progress: Progress = silent,
    cancelled: Cancelled = never,
) -> SplashManifest:
    """Write the package.

    Args:
        plan: of :func:`splashpy.packing.pack.plan_pack`; it can be used once.
        vision: ``vision/model.bin`` of a Splash package; None takes the tower from
            the target's own files.
        progress: phase ``prepare``, in bytes.
        cancelled: polled between tensors.

    Raises:
        ModelKindError: the parts have not the sizes or types of a format.
        PairError: they have those of two.
        UsageError: there is no drafter, or no vision tower.
        DiskSpaceError, PermissionDeniedError: it cannot be written.
        CancelledError: ``cancelled`` said yes; the same call goes on from there.
    """
    if plan.draft is None:
        raise UsageError("a Splash package has a drafter", fix=["name DRAFT"])
    row = find_format(plan)
    parts = SplashParts(
        target=_target(plan),
        draft=plan.draft.plan.shards.give,
        vision=_vision(plan, row, vision),
        tokenizer=_tokenizer(plan),
        model=plan.name,
        upstream=_upstream(plan),
        original=_original(plan),
    )
    output = plan.wish.output.absolute()
    num_bytes = sum(layout.num_bytes for layout in weight_files(row))
    check_room(output, num_bytes + sum(map(len, parts.tokenizer.values())))
    with resumable(output, _made_for(plan, row, vision), progress, cancelled) as folder:
        return write_splash(row, parts, folder, progress=progress, cancelled=cancelled)


def find_format(plan: PackPlan) -> SplashFormat:
    """The format whose sizes both parts have.

    Raises:
        ModelKindError: there is none; names what differs from the likeliest.
        PairError: target and drafter are of two formats.
    """
    assert plan.draft is not None
    model_type = plan.target.plan.config["model_type"]
    rows = [row for row in plan.wish.formats.values() if row.model_type == model_type]
    if not rows:
        known = ", ".join(row.model_type for row in plan.wish.formats.values())
        raise ModelKindError(
            f"there is no Splash format for {model_type}", why=f"there is for {known}"
        )
    row = rows[0]
    entries = dict(plan.target.plan.shards.entries)
    for name in list(entries):
        if name.endswith(".A_log"):
            entries[f"{name.removesuffix('.A_log')}.decay"] = (
                "F32",
                entries.pop(name)[1],
            )
    _check_entries("target", row, target_files(row), entries)
    draft = dict(plan.draft.plan.shards.entries)
    _check_entries("drafter", row, draft_files(row), draft)
    _check_draft(plan.draft.plan.config, row)
    return row


def _made_for(plan: PackPlan, row: SplashFormat, vision: Path | None) -> str:
    """Identifies everything the files depend on."""
    tower: list[Any] = []
    if vision is not None and vision.exists():
        found = vision.stat()
        tower = [str(vision.absolute()), found.st_size, found.st_mtime_ns]
    parts = [fingerprint(plan), row.name, tower]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _check_entries(
    part: str,
    row: SplashFormat,
    files: list[FileLayout],
    entries: Mapping[str, Entry],
) -> None:
    expected = {name: e for file in files for name, e in file.tensors().items()}
    for name, entry in expected.items():
        found = entries.get(name)
        if found != entry:
            is_a = f"is {found[0]} {list(found[1])}" if found else "is missing"
            raise ModelKindError(
                f"the {part}'s {name} {is_a}",
                why=f"{row.name} has {entry[0]} {list(entry[1])}",
            )
    if others := sorted(entries.keys() - expected.keys()):
        raise ModelKindError(f"{row.name} has no place for the {part}'s {others[0]}")


def _check_draft(config: Mapping[str, Any], row: SplashFormat) -> None:
    """Facts no file of the package holds must be those of the format."""
    expected = draft_config(row)
    found = config.get("dflash_config")
    for key, value in expected["dflash_config"].items():
        if not isinstance(found, dict) or found.get(key) != value:
            own = found.get(key) if isinstance(found, dict) else None
            raise PairError(
                f"the drafter's {key} is {own}", why=f"{row.name} has {value}"
            )


def _target(plan: PackPlan) -> Give:
    """The target's tensors, with the stored decays where they are known."""
    content = plan.target.plan.others.get(SPLASH_EXTRA)
    try:
        decays = load(content) if content else {}
    except SafetensorError as error:
        raise IntegrityError(f"{SPLASH_EXTRA} is damaged", why=str(error)) from None
    give = plan.target.plan.shards.give

    def tensor(name: str) -> Tensor:
        if not name.endswith(".decay"):
            return give(name)
        layer = name.partition(".layers.")[2].partition(".")[0]
        return Tensor("F32", decays[f"splash.layers.{layer}.decay"].astype(np.float32))

    return tensor


def _vision(plan: PackPlan, row: SplashFormat, file: Path | None) -> Give:
    layout, given = vision_file(row), plan.wish.target
    if file is None and given.kind == "splash":
        own = given.path / VISION_PATH
        file = own if own.exists() else None
    if file is not None:
        check_image(file, layout)
        directory = file.parent.parent
        if file != directory / layout.path:
            raise UsageError(
                f"--vision {file}", why=f"it must be the {VISION_PATH} of a directory"
            )
        return SplashTensors(directory, [layout]).__getitem__
    if given.kind == "checkpoint":
        checkpoint = Checkpoint.open(given.path)
        if f"{_VISION_PREFIX}{_PATCHES}" in checkpoint:
            return _of_checkpoint(checkpoint, layout)
    raise UsageError(
        "a Splash package has a vision tower, and the target brings none",
        fix=[f"--vision FILE names the {VISION_PATH} of another package"],
    )


def _of_checkpoint(checkpoint: Checkpoint, layout: FileLayout) -> Callable:
    shapes = layout.tensors()

    def tensor(name: str) -> Tensor:
        found = checkpoint.get(f"{_VISION_PREFIX}{name}")
        if found is None:
            raise ModelKindError(f"tensor {_VISION_PREFIX}{name} is missing")
        data = found.data
        if name == _PATCHES and data.ndim == 5:
            # MLX has [out, frame, row, column, channel], the file channels first.
            data = data.transpose(0, 4, 1, 2, 3)
        shape = shapes[name][1]
        return Tensor(found.dtype, data.reshape(shape) if data.ndim == 5 else data)

    return tensor


def _tokenizer(plan: PackPlan) -> dict[str, bytes]:
    target = plan.target
    files = {f"tokenizer/{name}": c for name, c in target.plan.tokenizer.items()}
    splash = target.splash or {}
    config = splash.get("config")
    files["tokenizer/config.json"] = (
        config.encode() if isinstance(config, str) else json_bytes(target.plan.config)
    )
    if "tokenizer/vocab.json" not in files:
        definition = json.loads(files["tokenizer/tokenizer.json"])
        tokens = vocabulary(Fields(definition, "tokenizer.json"))
        files["tokenizer/vocab.json"] = json.dumps(tokens, ensure_ascii=False).encode()
    for name in TOKENIZER_FILES:
        if name not in files:
            raise ModelKindError(f"a Splash package has {name}, the target has none")
    return {name: files[name] for name in TOKENIZER_FILES}


def _upstream(plan: PackPlan) -> dict[str, Any]:
    assert plan.draft is not None
    return {
        "draft": _origin(plan.draft.origin.source),
        "target": _origin(plan.target.origin.source),
        "tokenizer": _origin(plan.target.origin.source),
    }


def _origin(source: Source) -> dict[str, str]:
    return {"repo_id": source.repo_id, "revision": source.revision}


def _original(plan: PackPlan) -> bytes:
    text = (plan.target.splash or {}).get("manifest")
    return text.encode() if isinstance(text, str) else b""
