# SPDX-License-Identifier: Apache-2.0
"""Somebody who uses one client, with an empty home and nothing but this machine."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

LIMIT = 300  # seconds; a client takes a few, on a loaded machine many
NOBODY = "http://127.0.0.1:9"  # the discard port: what is sent there goes nowhere


@dataclass(frozen=True, slots=True)
class Person:
    """Runs a client.

    Attributes:
        programs: where the client's own programs are.
        home: an empty directory.
        project: a repository of git without a commit.
    """

    programs: Path
    home: Path
    project: Path

    @classmethod
    def moves_in(cls, programs: Path, directory: Path) -> Person:
        """Make a home and a project."""
        home, project = directory / "home", directory / "project"
        home.mkdir()
        subprocess.run(["git", "init", "--quiet", project], check=True)
        return cls(programs, home, project)

    @property
    def environment(self) -> dict[str, str]:
        """What every program of this person sees."""
        return {
            "PATH": f"{self.programs}{os.pathsep}{os.defpath}{os.pathsep}/bin",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "GIT_AUTHOR_NAME": "somebody",
            "GIT_AUTHOR_EMAIL": "somebody@localhost",
            "GIT_COMMITTER_NAME": "somebody",
            "GIT_COMMITTER_EMAIL": "somebody@localhost",
            "HTTP_PROXY": NOBODY,
            "HTTPS_PROXY": NOBODY,
            "ALL_PROXY": NOBODY,
            "NO_PROXY": "127.0.0.1,localhost",
            "DO_NOT_TRACK": "1",
        }

    def write(self, name: str, text: str) -> Path:
        """A file below the home."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run(
        self, *words: str | Path, check: bool = True, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in the project and wait for its end.

        Raises:
            AssertionError: it failed, and was not expected to.
        """
        program, *rest = [str(word) for word in words]
        own = self.programs / program
        done = subprocess.run(
            [str(own) if own.exists() else program, *rest],
            cwd=self.project,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{done.stdout}\n{done.stderr}"
        return done
