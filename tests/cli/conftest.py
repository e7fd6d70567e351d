# SPDX-License-Identifier: Apache-2.0
"""The command line in this process and in others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from commandline import Call, Record, Result, Start, write_recording

from splashpy.cli import main


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run splashpy in this process."""

    def run(*words: str) -> Result:
        code = main(words)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Write a recording into this test's directory."""

    def write(*pieces: Any, **how: Any) -> Path:
        return write_recording(tmp_path / "recording.ndjson", *pieces, **how)

    return write


@pytest.fixture
def start() -> Iterator[Start]:
    """Start splashpy as a process of its own; ended after the test."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(
        *words: str,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = subprocess.PIPE,
        stderr: int | None = subprocess.PIPE,
        program: Sequence[str] = ("-m", "splashpy"),
        **variables: str,
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, *program, *words],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, **variables},
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
