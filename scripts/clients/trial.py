# SPDX-License-Identifier: Apache-2.0
"""Try real clients against a real server whose engine says what each flow needs.

The flows are the tests of tests/clients. A client that is not installed is skipped;
--install installs or updates it, in an environment of its own outside of this tree.
Clients run with an empty home and no network but this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import platformdirs
import pytest
from clients.catalogue import CLIENTS, Client
from install import InstallError, install

ROOT = Path(__file__).parents[2]
BEGIN = "<!-- written by scripts/test_clients --write -->"
END = "<!-- end -->"


@dataclass(frozen=True, slots=True)
class Flow:
    """One thing a client did.

    Attributes:
        name: what it does, as a sentence.
        result: ``passed``, ``failed`` or ``skipped``.
        seconds: how long it took.
        reason: of a failure or a skip, in one line.
    """

    name: str
    result: str
    seconds: float
    reason: str = ""


@dataclass(slots=True, eq=False)
class Trial:
    """A plugin of pytest that keeps what came of each flow, by client."""

    flows: dict[str, list[Flow]] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        path, _, test = report.nodeid.partition("::")
        reason = ""
        if report.skipped and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
        elif report.failed:
            reason = report.longreprtext.rstrip().rsplit("\n", 1)[-1]
        name = test.removeprefix("test_").replace("_", " ").replace("[", " (")
        flow = Flow(
            name.replace("]", ")"), report.outcome, round(report.duration, 1), reason
        )
        self.flows.setdefault(Path(path).stem.removeprefix("test_"), []).append(flow)
        mark = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}[report.outcome]
        client = Path(path).stem.removeprefix("test_")
        print(f"{mark} {client}: {flow.name}", file=sys.stderr, flush=True)


def main() -> int:
    options = arguments()
    chosen = [c for c in CLIENTS if not options.only or c.name in options.only]
    directory = options.directory
    if options.install:
        for client in chosen:
            print(f"installing {client.title} …", file=sys.stderr, flush=True)
            try:
                install(client, directory)
            except InstallError as error:
                print(f"error: {client.title}: {error}", file=sys.stderr)
    trial, code = attempt(chosen, directory)
    document = {
        "schema": "splashpy.test_clients/1",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "clients": [
            {
                "name": client.name,
                "title": client.title,
                "package": client.package,
                "version": client.version(directory),
                "flows": [asdict(flow) for flow in trial.flows.get(client.name, [])],
            }
            for client in chosen
        ],
    }
    if options.write:
        write(options.write, document)
    if options.json:
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(summary(document)))
    return code


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [client.name for client in CLIENTS]
    parser.add_argument(
        "--only", action="append", choices=names, help="one client; repeatable"
    )
    parser.add_argument(
        "--install", action="store_true", help="install or update clients before"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="put the table into docs/clients.md"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(platformdirs.user_cache_dir("splashpy-clients", appauthor=False)),
        help="where the clients are [%(default)s]",
    )
    return parser.parse_args()


def attempt(chosen: Sequence[Client], directory: Path) -> tuple[Trial, int]:
    """Run the flows of the clients; returns what came of them, and an exit code."""
    os.environ["SPLASHPY_CLIENTS"] = str(directory.resolve())
    os.chdir(ROOT)
    trial = Trial()
    files = [f"tests/clients/test_{client.name}.py" for client in chosen]
    with redirect_stdout(sys.stderr):
        code = pytest.main(["-q", "--no-header", "-p", "no:xdist", *files], [trial])
    return trial, int(code)


def machine() -> str:
    """The class of this machine, without its name."""
    cores = os.cpu_count()
    return f"{platform.system()} {platform.machine()}, {cores} cores"


def summary(document: dict) -> list[str]:
    """One line for each client."""
    lines = []
    for client in document["clients"]:
        results = [flow["result"] for flow in client["flows"]]
        version = client["version"] or "not installed"
        passed = f"{results.count('passed')} of {len(results)} flows passed"
        lines.append(f"{client['title']:20} {version:16} {passed}")
    return lines


def write(path: Path, document: dict) -> None:
    """Replace the table between its two marks, or say that they are missing."""
    text = path.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"error: {path} has no {BEGIN} … {END}")
    body = "\n".join(table(document))
    path.write_text(f"{head}{begin}\n{body}\n{end}{tail}", encoding="utf-8")


def table(document: dict) -> list[str]:
    """The document as Markdown."""
    lines = [
        f"Tried on {document['date']}, {document['machine']}.",
        "",
        "| Client | Version | Flow | Result |",
        "| --- | --- | --- | --- |",
    ]
    for client in document["clients"]:
        version = client["version"] or "not installed"
        head = f"| {client['title']} | {version} |"
        lines += [f"{head} {f['name']} | {f['result']} |" for f in client["flows"]]
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
