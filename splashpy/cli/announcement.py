# SPDX-License-Identifier: Apache-2.0
"""What a person is told before anything large comes over the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from splashpy.cli.invocation import Invocation
from splashpy.units import format_bytes

if TYPE_CHECKING:
    from splashpy.packing.memory_verdict import Weights
    from splashpy.packing.outlook import Outlook
    from splashpy.packing.target_plan import PackingWish


def announce(invocation: Invocation, text: str, revision: str | None) -> None:
    """Say how much a model brings over the network and whether it fits in memory.

    Args:
        invocation: says where models are, and whether the network is forbidden.
        text: as TARGET of ``pack``; nothing is said of what is here already.
        revision: of a repository, instead of one in the word.

    Raises:
        SplashError: the Hub does not answer, or has no such repository.
    """
    outlook = _look(invocation, text, revision)
    if outlook:
        _tell(invocation, {text: outlook}, outlook.parts, outlook.config)


def announce_package(
    invocation: Invocation, wish: PackingWish, draft_bits: int | None
) -> None:
    """Say the same of what a package will be made of, and of the package.

    Args:
        invocation: of ``pack``.
        wish: how the target is packed.
        draft_bits: of the drafter; None keeps what it has.

    Raises:
        PairError: the drafter is to be chosen, and none can be.
        SplashError: as ``announce``.
    """
    given = invocation.given
    target = _look(invocation, given["target"], given["revision"])
    if target is None:
        return
    usual = wish.everywhere
    coming = {given["target"]: target}
    parts = [target.target.packed(usual.bits, usual.group_size)]
    word = _draft(given["draft"], target)
    draft = _look(invocation, word, given["draft_revision"]) if word else None
    if draft:
        coming[word] = draft
        weights = draft.draft or draft.target
        parts.append(weights.packed(draft_bits, 64) if draft_bits else weights)
    _tell(invocation, coming, parts, target.config)


def _look(invocation: Invocation, text: str, revision: str | None) -> Outlook | None:
    from splashpy.packing.outlook import look

    return look(text, revision, invocation.paths, offline=invocation.offline)


def _draft(word: str | None, target: Outlook) -> str:
    """The drafter meant; empty where there is none or the target must be read first."""
    from splashpy.package.published_drafters import only_drafter
    from splashpy.packing.pairing import AUTO

    if word != AUTO:
        return word or ""
    if not target.config:
        return ""
    return only_drafter(target.config, target.base_model).repo


def _tell(
    invocation: Invocation,
    coming: Mapping[str, Outlook],
    parts: Sequence[Weights],
    config: Mapping[str, Any],
) -> None:
    from splashpy.packing.memory_verdict import judge

    sizes = {word: outlook.download_bytes for word, outlook in coming.items()}
    if not any(sizes.values()) or invocation.output.json:
        return
    for word, size in sizes.items():
        if size:
            invocation.output.note(f"{word}: {format_bytes(size)} to download")
    if verdict := judge(parts, config):
        invocation.output.note(str(verdict))
