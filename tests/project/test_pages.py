# SPDX-License-Identifier: Apache-2.0
"""README, documentation and scripts say what is true."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from splashpy.cli import program

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = click.Context(program.PROGRAM)
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/*.md")])
MANUALS = sorted(ROOT.glob("docs/man/*.1"))


def blocks(text: str) -> Iterator[str]:
    """Fenced blocks of shell commands."""
    yield from re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/pages/generate.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_ci_runs_the_command_the_readme_gives_for_the_tests() -> None:
    (command,) = set(re.findall(r"^\./scripts/test\b.*$", README, re.M))
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    assert command.split("#")[0].strip() in script.splitlines()
    workflow = (ROOT / ".github/workflows/check.yml").read_text(encoding="utf-8")
    assert "run: .ci/run\n" in workflow
    assert "permissions:\n  contents: read\n" in workflow


@pytest.mark.parametrize("name", ["chat", "test", "check", "docs", "train_tiny"])
def test_a_script_is_a_program_that_a_shell_can_read(name: str) -> None:
    script = ROOT / "scripts" / name

    assert script.stat().st_mode & 0o111
    subprocess.run(["sh", "-n", str(script)], check=True)


def test_the_readme_fits_its_length() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_inside_the_repository_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text)

    for link in links:
        if "://" not in link:
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_splashpy_command_on_a_page_can_be_parsed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for line in "\n".join(blocks(text)).splitlines():
        command = line.split("#")[0].split("|")[-1].strip()
        words = shlex.split(command.split(">")[0].split("<")[0])
        if words[:1] == ["splashpy"] and words[1:2] != ["--version"]:
            name, _, rest = program.PROGRAM.resolve_command(PROGRAM, words[1:])
            # Raises what a person would be told; no command runs.
            program.load(name or "").make_context(name, rest)


@pytest.mark.parametrize("manual", MANUALS, ids=lambda path: path.name)
def test_a_man_page_is_sound(manual: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("needs groff")
    done = subprocess.run(
        ["groff", "-man", "-ww", "-z", str(manual)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


def test_every_dependency_has_its_reason() -> None:
    page = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    wanted = project["project"]["dependencies"] + groups["test"] + groups["lint"]
    names = {re.match(r"[\w-]+", text)[0] for text in wanted}  # type: ignore[index]

    assert {"mlx", "click", "pytest", "ruff"} <= names
    for name in names:
        assert f"`{name}`" in page, name
