# SPDX-License-Identifier: Apache-2.0
"""Install real clients, each into an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from clients.catalogue import NODE, Client

NPM = ("npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix")


class InstallError(Exception):
    """A client cannot be installed; the message says why."""


def install(client: Client, directory: Path) -> None:
    """Install the newest version, or bring an installed one up to date.

    Args:
        client: which one.
        directory: where the environments are.

    Raises:
        InstallError: the registry cannot be reached, or npm is missing.
    """
    folder = client.folder(directory)
    if not client.npm:
        if not (folder / "bin" / "python").exists():
            _run(sys.executable, "-m", "venv", str(folder))
        pip = (
            str(folder / "bin" / "python"),
            "-m",
            "pip",
            "--disable-pip-version-check",
        )
        _run(*pip, "install", "--quiet", "--upgrade", client.package)
        return
    if shutil.which("npm") is None:
        raise InstallError("there is no npm; install Node.js")
    folder.mkdir(parents=True, exist_ok=True)
    # npm takes the newest version that runs on the Node.js it runs on itself.
    _run(*NPM, str(folder), NODE)
    path = f"{client.programs(directory)}{os.pathsep}{os.environ['PATH']}"
    _run(*NPM, str(folder), f"{client.package}@latest", path=path)


def _run(*words: str, path: str = "") -> None:
    environment = {**os.environ, **({"PATH": path} if path else {})}
    # What an installer prints is no part of the report.
    done = subprocess.run(words, env=environment, stdout=sys.stderr, check=False)
    if done.returncode:
        raise InstallError(f"{' '.join(words)} failed with {done.returncode}")
