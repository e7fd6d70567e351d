# SPDX-License-Identifier: Apache-2.0
"""The weights of a Splash package as the checkpoints they were made from.

The target comes out as mlx-lm's own tensors, the drafter as those of a DFlash 2
repository with packed matrices. No value changes on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from splashpy.package.splash import decay
from splashpy.package.splash.image import read_image
from splashpy.package.splash.layout import FileLayout, draft_files, target_files
from splashpy.package.splash.package import SplashPackage
from splashpy.package.splash.tensors import SplashTensors
from splashpy.package.weights.tensor import Tensor

Note = Callable[[str], None]
"""Called with a sentence for each file that cannot be written again byte for byte."""

_DECAY = ".decay"


def _nothing(_: str) -> None:
    """A ``Note`` for callers who need none."""


def target_tensors(
    package: SplashPackage, note: Note = _nothing, *, raw_decay: bool = False
) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of the target, file by file.

    Args:
        package: opened, and so checked.
        note: told of files whose last tiles are filled with something but zeros.
        raw_decay: give ``linear_attn.decay`` as stored in place of
            ``linear_attn.A_log``.

    Raises:
        IntegrityError: a file changed, or a decay is no decay.
    """
    for name, tensor in _tensors(package, target_files(package.manifest.row), note):
        if name.endswith(_DECAY) and not raw_decay:
            a_log = decay.to_a_log(tensor, f"{package.path}: {name}")
            yield f"{name.removesuffix(_DECAY)}.A_log", a_log
        else:
            yield name, tensor


def draft_tensors(
    package: SplashPackage, note: Note = _nothing
) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of the drafter, file by file; ``note`` as above."""
    yield from _tensors(package, draft_files(package.manifest.row), note)


def decays(package: SplashPackage) -> dict[str, Tensor]:
    """The decay of every GDN layer, as stored."""
    tensors = SplashTensors(package.path, target_files(package.manifest.row))
    return {name: tensors[name] for name in tensors if name.endswith(_DECAY)}


def _tensors(
    package: SplashPackage, files: list[FileLayout], note: Note
) -> Iterator[tuple[str, Tensor]]:
    for layout in files:
        for content in read_image(package.path / layout.path, layout):
            if not content.padding_is_zero:
                note(f"{layout.path}: what fills its last tiles is not zero")
            yield from content.tensors.items()
