# SPDX-License-Identifier: Apache-2.0
"""``splashpy pack``: a target and a drafter become a package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from splashpy.cli.announcement import announce_package
from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON
from splashpy.cli.packing_options import PACKING_ROWS
from splashpy.cli.page import Page, PageCommand
from splashpy.cli.signals import Interrupts
from splashpy.errors import UsageError
from splashpy.units import format_bytes

if TYPE_CHECKING:
    from splashpy.cli.progress import ProgressLine
    from splashpy.package.progress import Cancelled
    from splashpy.packing.inputs import Input
    from splashpy.packing.pack import PackPlan
    from splashpy.packing.target_plan import PackingWish


def pack(invocation: Invocation) -> int:
    """Build the package; its directory goes to stdout.

    Raises:
        SplashError: usage, files, terms, a pair that does not fit, or no room.
        KeyboardInterrupt: stopped; a rerun goes on from there.
    """
    from splashpy.package.progress import CancelledError

    _check_options(invocation)
    progress = invocation.progress()
    with Interrupts(invocation.output.err) as interrupts:
        try:
            return _pack(invocation, progress, lambda: interrupts.requested)
        except CancelledError:
            progress.close()
            invocation.output.note("stopped; the same command goes on from here")
            raise KeyboardInterrupt(interrupts.exit_code) from None
        finally:
            progress.close()


def _check_options(invocation: Invocation) -> None:
    given = invocation.given
    if given["folder"] is None:
        raise UsageError(
            "-o DIR is missing",
            why="it says where the package goes",
            fix=["splashpy pack TARGET DRAFT -o DIR"],
        )
    if given["draft_revision"] and given["draft"] is None:
        raise UsageError("--draft-revision goes with DRAFT")
    if given["vision"] and given["format"] != "splash":
        raise UsageError("--vision goes with --format splash")


def _pack(invocation: Invocation, progress: ProgressLine, cancelled: Cancelled) -> int:
    from splashpy.packing.build import check_output
    from splashpy.packing.pack import PackWish, plan_pack
    from splashpy.packing.pairing import AUTO

    given, output = invocation.given, invocation.output
    folder = Path(given["folder"]).expanduser()
    check_output(folder, force=given["replace"])
    announce_package(invocation, _packing(invocation), _draft_bits(invocation))
    target = _input(invocation, given["target"], "revision", progress, cancelled)
    draft = given["draft"]
    if draft == AUTO:
        draft = _published(invocation, target)
    plan = plan_pack(
        PackWish(
            target=target,
            draft=_input(invocation, draft, "draft_revision", progress, cancelled)
            if draft
            else None,
            output=folder,
            name=given["name"] or "",
            packing=_packing(invocation),
            draft_bits=_draft_bits(invocation),
            accepted=given["license_ok"],
            check=not given["no_check"],
            force=given["replace"],
        ),
        progress.update,
        cancelled,
    )
    progress.close()
    if not output.json:
        size = format_bytes(plan.num_bytes)
        output.note(f"{plan.name}: {size} of weights; {_terms(plan)}")
        for note in plan.notes:
            output.note(f"note: {note}")
    if given["dry_run"]:
        return _tell(invocation, folder, {"name": plan.name, "bytes": plan.num_bytes})
    if given["format"] == "splash":
        return _write_splash(invocation, plan, progress, cancelled)
    return _write_native(invocation, plan, progress, cancelled)


def _input(
    invocation: Invocation,
    text: str,
    revision: str,
    progress: ProgressLine,
    cancelled: Cancelled,
) -> Input:
    from splashpy.packing.inputs import resolve

    return resolve(
        text,
        invocation.given[revision],
        invocation.paths,
        offline=invocation.offline,
        progress=progress.update,
        cancelled=cancelled,
    )


def _published(invocation: Invocation, target: Input) -> str:
    """The repository of the drafter that was made for a target."""
    from splashpy.packing.pairing import published_drafter

    chosen = published_drafter(target)
    invocation.output.note(f"drafter: {chosen.repo}, made for {chosen.made_for}")
    return chosen.repo


def _packing(invocation: Invocation) -> PackingWish:
    from splashpy.packing.quantize_on_demand import Packing
    from splashpy.packing.target_plan import USUAL, PackingWish

    given = invocation.given
    usual = given["group_size"] or USUAL.group_size
    return PackingWish(
        bits=given["target_bits"],
        group_size=given["group_size"],
        overrides=tuple(
            (pattern, None if bits == 16 else Packing(bits, group or usual))
            for pattern, bits, group in given["bits_for"]
        ),
    )


def _draft_bits(invocation: Invocation) -> int | None:
    """Splash knows 4-bit drafters only, so that is what its format asks for."""
    given = invocation.given
    if given["format"] == "splash" and given["packed_draft_bits"] is None:
        return 4
    return given["packed_draft_bits"]


def _terms(plan: PackPlan) -> str:
    parts = [f"target {plan.target.terms.spdx}"]
    if plan.draft:
        parts.append(f"draft {plan.draft.terms.spdx}")
    return "licences: " + ", ".join(parts)


def _write_native(
    invocation: Invocation, plan: PackPlan, progress: ProgressLine, cancelled: Cancelled
) -> int:
    from splashpy.packing.pack import pack as write

    packed = write(plan, progress.update, cancelled)
    progress.close()
    tau = packed.check.acceptance_length if packed.check else None
    told = not invocation.output.json
    for note in packed.notes[len(plan.notes) :] if told else ():
        invocation.output.warn(note)
    if told and tau is not None:
        invocation.output.note(
            f"self-check: {tau:.2f} tokens a cycle, the target's own included"
        )
    manifest = packed.manifest
    fields = {
        "name": manifest.name,
        "manifest": str(packed.path / "splashpy.json"),
        "bytes": manifest.size_bytes,
        "files_digest": manifest.files_digest,
        "files": {entry.path: entry.sha256 for entry in manifest.files},
        "acceptance_length": tau,
        "notes": list(packed.notes),
    }
    return _tell(invocation, packed.path, fields)


def _write_splash(
    invocation: Invocation, plan: PackPlan, progress: ProgressLine, cancelled: Cancelled
) -> int:
    from splashpy.packing.pack_splash import pack_splash

    vision = invocation.given["vision"]
    manifest = pack_splash(
        plan,
        Path(vision).expanduser() if vision else None,
        progress.update,
        cancelled,
    )
    progress.close()
    path = plan.wish.output.absolute()
    fields = {
        "name": manifest.model,
        "manifest": str(path / "manifest.json"),
        "bytes": sum(entry.size for entry in manifest.files),
        "files": {entry.path: entry.sha256 for entry in manifest.files},
        "notes": list(plan.notes),
    }
    return _tell(invocation, path, fields)


def _tell(invocation: Invocation, path: Path, fields: dict[str, Any]) -> int:
    if invocation.output.json:
        dry = invocation.given["dry_run"]
        document = {"path": str(path.absolute()), "dry_run": dry, **fields}
        invocation.output.document("pack", document)
    else:
        invocation.output.result(str(path.absolute()))
    return 0


PACK = PageCommand(
    "pack",
    page=Page(
        usage="TARGET [DRAFT] -o DIR",
        summary="Build a package out of a target and its drafter.",
        examples=(
            (
                "splashpy pack ./Qwen3-8B ./drafter -o ./pair --draft-bits 4",
                "two directories as the Hub has them, the target in 4 bits",
            ),
            (
                "splashpy pack ./model.Q8_0.gguf -o ./plain",
                "a GGUF file, without a drafter; its values stay",
            ),
            (
                "splashpy pack demo ./drafter -o ./pair",
                "the target of an installed package with another drafter",
            ),
        ),
        notes=(
            "TARGET and DRAFT are a directory, a GGUF file, OWNER/REPO[@REV], one file",
            "of it as OWNER/REPO[@REV]:FILE.gguf, or an installed model. DRAFT may be",
            "auto: the drafter published for such a target. What is packed already",
            "stays as it is. Equal inputs give equal bytes. Ctrl-C keeps finished",
            "files; the same command goes on.",
        ),
    ),
    arguments=(
        click.Argument(["target"], metavar="TARGET"),
        click.Argument(["draft"], required=False, metavar="[DRAFT]"),
    ),
    options=(
        *(row.name for row in PACKING_ROWS["Package"]),
        "revision",
        "dry_run",
        *COMMON,
    ),
    run=pack,
)
