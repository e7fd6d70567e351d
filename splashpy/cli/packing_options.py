# SPDX-License-Identifier: Apache-2.0
"""Rows of the table of options that ``splashpy pack`` and ``unpack`` take."""

from __future__ import annotations

from splashpy.cli import values
from splashpy.cli.option import Option

BITS = (4, 8)
GROUP_SIZES = (32, 64, 128)

ModulePacking = tuple[str, int, int | None]
"""Pattern of module names, bits (16: not packed), and group size if one was given."""


def module_packing(value: str) -> ModulePacking:
    """``PATTERN=N`` or ``PATTERN=N/GROUP``, N being bits.

    Raises:
        ValueError: the text is neither.
    """
    allowed = "PATTERN=4, =8 or =16, with a group such as /32, as in *lm_head=8/32"
    pattern, mark, packing = value.rpartition("=")
    bits, _, group = packing.partition("/")
    if not mark or not pattern or bits not in map(str, (*BITS, 16)):
        raise ValueError(allowed)
    if "/" in packing and group not in map(str, GROUP_SIZES):
        raise ValueError(allowed)
    return pattern, int(bits), int(group) if group else None


PACKING_ROWS: dict[str, tuple[Option, ...]] = {
    "Package": (
        Option("-o --output", "directory to write", "DIR", values.text, key="folder"),
        Option("--name", "of the package", "NAME", values.text, default="the target's"),
        Option(
            "--format",
            "whose packages",
            "native|splash",
            values.choice("native", "splash"),
            default="native",
        ),
        Option(
            "--bits",
            "of the target's matrices",
            "4|8",
            values.number_choice(*BITS),
            default="4",
            key="target_bits",
        ),
        Option(
            "--group-size",
            "weights that share a scale",
            "32|64|128",
            values.number_choice(*GROUP_SIZES),
            default="64",
        ),
        Option(
            "--bits-for",
            "of some modules; 16 leaves them (repeat)",
            "PATTERN=N[/GROUP]",
            module_packing,
            repeat=True,
            rare=True,
        ),
        Option(
            "--draft-bits",
            "of the drafter's matrices",
            "4|8|16",
            values.number_choice(4, 8, 16),
            default="as they are",
            key="packed_draft_bits",
        ),
        Option("--draft-revision", "revision of DRAFT", "REV", values.text, rare=True),
        Option(
            "--license-ok",
            "make a copy for yourself all the same (repeat)",
            "ID",
            values.text,
            repeat=True,
        ),
        Option(
            "--vision",
            "vision/model.bin for --format splash",
            "FILE",
            values.text,
            rare=True,
        ),
        Option("--no-check", "do not decode with the package"),
        Option("--force", "replace what is in DIR", key="replace"),
    ),
}
"""Rows under the heading they stand under on a page."""
