# SPDX-License-Identifier: Apache-2.0
"""Under which terms a checkpoint may be used, as far as its files say.

A model card begins with lines of YAML that name the licence; the full text is a file
beside it. Terms that forbid derivatives forbid passing on a quantized copy, so packing
one needs the consent of the person who packs, for their own use.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from splashpy.errors import UsageError
from splashpy.package.components import License, Redistribution

UNKNOWN = "LicenseRef-unknown"

_SPDX = {
    name.lower(): name
    for name in (
        *("Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unlicense"),
        *("GPL-3.0", "AGPL-3.0", "LGPL-3.0", "MPL-2.0"),
    )
}
_PERMISSIVE = frozenset(
    (
        *("Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unlicense"),
        *("CC0-1.0", "CC-BY-4.0", "CC-BY-SA-4.0"),
    )
)
_CARD_LINES = 200  # front matter is short; a card without an end is no front matter
_TEXT_NAMES = ("LICENSE*", "LICENCE*", "COPYING*")
_LARGEST_TEXT = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What was found.

    Attributes:
        spdx: SPDX identifier, or ``LicenseRef-...``.
        text: the full text, or where it is.
        url: where the terms are published; may be empty.
        redistribution: as far as the identifier tells.
    """

    spdx: str
    text: bytes
    url: str = ""
    redistribution: Redistribution

    def as_license(self, path: str) -> License:
        """For the manifest, with the text at ``path``."""
        return License(
            spdx=self.spdx, text=path, url=self.url, redistribution=self.redistribution
        )


def read_terms(directory: Path, repo: str = "") -> Terms:
    """The terms a directory states.

    Args:
        directory: of a checkpoint.
        repo: ``OWNER/REPO`` it was downloaded from; empty for a local one.
    """
    card = card_fields(directory / "README.md")
    named = card.get("license", "")
    if named.lower() in ("other", "") and card.get("license_name"):
        named = card["license_name"]
    spdx = spdx_of(named)
    url = f"https://huggingface.co/{repo}" if repo else card.get("license_link", "")
    return Terms(
        spdx=spdx,
        text=_text(directory) or _reference(spdx, url),
        url=url,
        redistribution=redistribution_of(spdx),
    )


def spdx_of(name: str) -> str:
    """The SPDX identifier of a licence as model cards name it."""
    lower = name.strip().lower()
    if not lower:
        return UNKNOWN
    if lower.startswith("cc"):
        return lower.upper()
    if lower.startswith("licenseref-"):
        return name.strip()
    return _SPDX.get(lower, f"LicenseRef-{re.sub(r'[^A-Za-z0-9.-]+', '-', lower)}")


def redistribution_of(spdx: str) -> Redistribution:
    """Whether a changed copy may be passed on, as far as the identifier tells."""
    if spdx in _PERMISSIVE:
        return "allowed"
    return "forbidden" if "ND" in spdx.upper().split("-") else "unknown"


def refuse_derivative(part: str, terms: Terms, accepted: Collection[str]) -> None:
    """Refuse to change weights whose terms forbid it.

    Args:
        part: ``target`` or ``draft``.
        terms: of the part.
        accepted: licences the person has consented to, for use that is not published.

    Raises:
        UsageError: the terms forbid derivatives and were not accepted.
    """
    if terms.redistribution != "forbidden":
        return
    if terms.spdx.lower() in {spdx_of(name).lower() for name in accepted}:
        return
    raise UsageError(
        f"the {part}'s licence {terms.spdx} forbids changed copies, and packing it "
        "would quantize it",
        why="a changed copy may not be passed on, but you may make one for yourself",
        fix=[f"--license-ok {terms.spdx}, if you will not publish the package"]
        + (["--draft-bits 16 keeps the drafter as it is"] if part == "draft" else []),
    )


def card_fields(card: Path) -> dict[str, str]:
    """The plain ``key: value`` lines at the beginning of a model card."""
    try:
        lines = card.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    if not lines or lines[0].strip() != "---":
        return {}
    found: dict[str, str] = {}
    key = ""
    for line in lines[1:_CARD_LINES]:
        if line.strip() == "---":
            return found
        if match := re.fullmatch(r"([A-Za-z_]+):\s*(.*)", line):
            key = match[1]
            found[key] = match[2].strip().strip("\"'")
        elif (item := re.fullmatch(r"\s*-\s+(.*)", line)) and not found.get(key):
            found[key] = item[1].strip().strip("\"'")  # the first of a list
    return {}


def _text(directory: Path) -> bytes:
    for pattern in _TEXT_NAMES:
        for path in sorted(directory.glob(pattern)):
            if path.is_file() and path.stat().st_size <= _LARGEST_TEXT:
                return path.read_bytes()
    return b""


def _reference(spdx: str, url: str) -> bytes:
    if spdx == UNKNOWN:
        return b"The source of this part states no licence.\n"
    where = f"; see {url}" if url else ""
    return f"The source of this part names its licence: {spdx}{where}.\n".encode()
