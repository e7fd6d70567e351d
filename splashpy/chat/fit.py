# SPDX-License-Identifier: Apache-2.0
"""Whether a model fits this machine, from numbers alone.

need(context) = weights + state of every token of the context. The budget is what the
engine's device allows. A number that is not known makes the verdict ``?``; nothing is
ever forbidden because of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from splashpy.protocol import Device
from splashpy.units import format_bytes, format_tokens

Mark = Literal["✓", "◐", "!", "✗", "?"]

_SMALLEST_CONTEXT = 4096  # with less, a conversation soon ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A model one could talk with.

    Attributes:
        name: as people call it.
        path: directory to load; empty when it is not on this machine.
        revision: of it.
        about: one line.
        size_bytes: on disk, which is what a GPU keeps.
        unpacked_bytes: what a processor without a GPU keeps.
        kv_per_token: bytes of state a token of context takes; 0 when unknown.
        context_max: tokens of prompt plus answer.
        has_draft: it brings a drafter.
        last_used: when, for a person.
    """

    name: str
    path: str = ""
    revision: str = ""
    about: str = ""
    size_bytes: int = 0
    unpacked_bytes: int = 0
    kv_per_token: int = 0
    context_max: int = 0
    has_draft: bool = False
    last_used: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A mark and the sentence that says why."""

    mark: Mark
    text: str


def verdict(offer: Offer, device: Device | None, free_bytes: int | None) -> Verdict:
    """Whether a model fits.

    Args:
        offer: the model.
        device: what the engine computes on; None while it is not known.
        free_bytes: memory no program uses now, the present model's counted as free;
            None where the platform does not say.
    """
    if not offer.path:
        return Verdict("?", "not on this machine")
    budget = (device.working_set_bytes or device.memory_bytes) if device else 0
    weights = _weights(offer, device)
    if not budget or not weights:
        return Verdict("?", "not known yet")
    if weights > budget:
        needs, allows = format_bytes(weights), format_bytes(budget)
        return Verdict("✗", f"needs {needs}, this machine allows {allows}")
    if not offer.kv_per_token or not offer.context_max:
        return Verdict("?", f"weights {format_bytes(weights)} fit; context not known")
    room = (budget - weights) // offer.kv_per_token
    context = min(room, offer.context_max)
    if context < min(_SMALLEST_CONTEXT, offer.context_max):
        smallest = weights + _SMALLEST_CONTEXT * offer.kv_per_token
        return Verdict(
            "✗",
            f"needs {format_bytes(smallest)} with {format_tokens(_SMALLEST_CONTEXT)} "
            f"of context, this machine allows {format_bytes(budget)}",
        )
    if free_bytes is not None and weights > free_bytes:
        return Verdict(
            "!", f"fits if other programs free {format_bytes(weights - free_bytes)}"
        )
    if context < offer.context_max:
        return Verdict("◐", f"fits up to {format_tokens(context)} of context")
    return Verdict("✓", f"fits, all {format_tokens(context)} of context")


def explained(offer: Offer, device: Device | None) -> str:
    """The numbers behind a verdict, one line each."""
    weights = _weights(offer, device)
    lines = [offer.about] if offer.about else []
    if weights:
        lines.append(f"weights   {format_bytes(weights)}")
    if offer.kv_per_token and offer.context_max:
        whole = offer.kv_per_token * offer.context_max
        lines.append(
            f"context   {format_bytes(offer.kv_per_token)} a token,"
            f" {format_bytes(whole)} for {format_tokens(offer.context_max)}"
        )
    budget = (device.working_set_bytes or device.memory_bytes) if device else 0
    if budget:
        lines.append(f"allowed   {format_bytes(budget)}")
    if not offer.path:
        lines.append(f"splashpy pull {offer.name}")
    else:
        lines.append("with its drafter" if offer.has_draft else "without a drafter")
    return "\n".join(lines)


def _weights(offer: Offer, device: Device | None) -> int:
    with_gpu = device is None or device.working_set_bytes
    return offer.size_bytes if with_gpu else offer.unpacked_bytes
