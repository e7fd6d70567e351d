# SPDX-License-Identifier: Apache-2.0
"""The tensors of Splash files by name, for a writer with an order of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from splashpy.package.splash.image import read_section
from splashpy.package.splash.layout import FileLayout, Section
from splashpy.package.weights.safetensors_file import Entry
from splashpy.package.weights.tensor import Tensor


class SplashTensors(Mapping[str, Tensor]):
    """Every tensor of some files.

    A section is unpacked when one of its tensors is asked for; the others are kept
    until they are asked for, so each can be had cheaply once.
    """

    def __init__(self, directory: Path, files: list[FileLayout]):
        """Nothing is read yet; the files were checked already.

        Args:
            directory: of the package.
            files: what to look into.
        """
        self._places: dict[str, tuple[Path, int, Section]] = {}
        self._entries: dict[str, Entry] = {}
        self._ready: dict[str, Tensor] = {}
        for layout in files:
            for offset, section in layout.placed():
                self._entries |= section.tensors()
                place = directory / layout.path, offset, section
                self._places |= dict.fromkeys(section.tensors(), place)

    def __getitem__(self, name: str) -> Tensor:
        """A tensor."""
        if name not in self._ready:
            self._ready |= read_section(*self._places[name]).tensors
        return self._ready.pop(name)

    def __iter__(self) -> Iterator[str]:
        """Names, in the order of the files."""
        return iter(self._places)

    def __len__(self) -> int:
        """How many tensors there are."""
        return len(self._places)

    @property
    def entries(self) -> dict[str, Entry]:
        """Types and shapes."""
        return self._entries
