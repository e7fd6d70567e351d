# SPDX-License-Identifier: Apache-2.0
"""README, documentation and scripts say what is true."""

from __future__ import annotations

import ast
import os
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
from commandline import LIMIT, write_recording

from splashpy.cli import program
from splashpy.cli.catalogue import CATALOGUE
from splashpy.cli.commands import COMMANDS

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

    for link in re.findall(r"\]\(([^)]+)\)", text):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            assert (page.parent / path).exists(), link
            other = page.parent / path if path else page
            assert not anchor or anchor in anchors(other), link


def anchors(page: Path) -> set[str]:
    """What a link may name on a page, as GitHub spells headings."""
    heads = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


NO_COMMANDS = ("CHANGELOG.md", "cli.md", "dependencies.md", "log.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_begins_with_a_command_that_works(page: Path) -> None:
    beginning = page.read_text(encoding="utf-8").splitlines()[:16]
    command = re.search(r"^(```sh|.*`splashpy \w)", "\n".join(beginning), re.M)

    assert command or page.name in NO_COMMANDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_said_of_a_command_between_words_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8").replace("\n", " ")
    for span in re.findall(r"`(splashpy [a-z][^`]*)`", text):
        check_spoken(span)


def check_spoken(span: str) -> None:
    """A command in running text: its name, and every option in it, exist."""
    words = span.partition(" -- ")[0].split()[1:]
    assert words[0] in COMMANDS or " ".join(words[:2]) in COMMANDS, span
    name = " ".join(words[:2])
    command = program.load(name if name in COMMANDS else words[0])
    flags = {flag for row in command.params for flag in row.opts}
    for word in words:
        if re.match(r"--?[a-z]", word):
            assert word.partition("=")[0].rstrip(".,") in {*flags, "-h", "--help"}, span


def advised() -> Iterator[str]:
    """What errors advise, with X for what is only known when they happen."""
    for row in CATALOGUE.values():
        yield from row.fixes
    for path in sorted((ROOT / "splashpy").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "fix":
                for each in getattr(node.value, "elts", ()):
                    parts = getattr(each, "values", [each])
                    yield "".join(map(_said, parts))


def _said(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else " X "


def test_every_command_the_program_advises_exists() -> None:
    texts = [text for text in advised() if re.match(r"splashpy [a-z]", text)]

    assert len(texts) > 50
    for text in texts:
        check_spoken(text)


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


RECORDED = """\
#!{python}
import math, sys
from pathlib import Path
from splashpy.cli import main, writing
from splashpy.client.replay import ReplayClient
from splashpy.protocol import Load

writing.load_command = lambda *_: Load(model="replay")
writing._connect = lambda _: ReplayClient(Path({recording!r}), speed=math.inf)
sys.exit(main())
"""
"""``splashpy`` with a recorded answer in place of a model."""

RUNS = [line for line in "".join(blocks(README)).splitlines() if "splashpy run" in line]


@pytest.mark.parametrize("line", RUNS)
def test_a_shell_runs_what_the_readme_shows(line: str, tmp_path: Path) -> None:
    recording = str(write_recording(tmp_path / "recording", "Red, yellow, blue."))
    program = tmp_path / "splashpy"
    program.write_text(RECORDED.format(python=sys.executable, recording=recording))
    program.chmod(0o755)
    places = os.pathsep.join((str(tmp_path), os.environ["PATH"]))
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=tmp_path,
        env={**os.environ, "PATH": places},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )

    assert (done.returncode, "error:" in done.stderr) == (0, False), done.stderr
    assert "Red, yellow, blue." in done.stdout


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
