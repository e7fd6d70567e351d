# SPDX-License-Identifier: Apache-2.0
"""What an installed splashpy has with it."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names in the wheel built from this tree."""
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


def build_wheel(root: Path, destination: Path) -> set[str]:
    (built,) = WheelBuilder(str(root)).build(
        directory=str(destination), versions=["standard"]
    )
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


@pytest.mark.parametrize("folder", ["metal_kernels", "packages"])
def test_folders_beside_the_package_travel_inside_it(
    wheel: set[str], folder: str
) -> None:
    files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    wanted = {f"splashpy/{path.relative_to(ROOT)}" for path in files if visible(path)}

    assert wanted or folder == "metal_kernels"
    assert wanted <= wheel


def test_every_file_of_the_package_is_in_the_wheel(wheel: set[str]) -> None:
    files = [path for path in (ROOT / "splashpy").rglob("*") if path.is_file()]
    wanted = {str(path.relative_to(ROOT)) for path in files if visible(path)}

    assert "splashpy/py.typed" in wanted
    assert wanted <= wheel


def test_licences_travel_with_the_wheel(wheel: set[str]) -> None:
    names = {Path(name).name for name in wheel if ".dist-info/licenses/" in name}

    assert names >= {"LICENSE", "NOTICE", "THIRD_PARTY_NOTICES"}


def test_a_wheel_built_from_the_source_distribution_is_the_same(
    wheel: set[str], tmp_path: Path
) -> None:
    (built,) = SdistBuilder(str(ROOT)).build(
        directory=str(tmp_path), versions=["standard"]
    )
    with tarfile.open(built) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (root,) = (tmp_path / "source").iterdir()

    assert build_wheel(root, tmp_path / "again") == wheel


def visible(path: Path) -> bool:
    """Whether a file is part of the project, and no cache or placeholder."""
    return "__pycache__" not in path.parts and not path.name.startswith(".")
