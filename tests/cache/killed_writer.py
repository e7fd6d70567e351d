# SPDX-License-Identifier: Apache-2.0
"""Kill a writer again and again: ``killed_writer.py ROOT ROUNDS SEED``.

One process forks a child for each round; the child writes chains of blocks and states
behind a queue, the parent kills it at a random moment, opens the directory as the next
engine would, and proves every record that is listed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from splashpy.cache.disk.catalogue import Catalogue, Entry
from splashpy.cache.disk.directory import NamespaceDirectory
from splashpy.cache.disk.record import HostArray, Record, read
from splashpy.cache.disk.writer import Writer

DIGEST = b"k" * 32
CHAIN = 6


def content(name: bytes) -> np.ndarray:
    generator = np.random.default_rng(list(name))
    return generator.integers(0, 1 << 16, 40_000, dtype=np.uint16)


def record(entry: Entry) -> Record:
    arrays = {"rows.0.0": HostArray("BF16", content(entry.name))}
    return Record({"ns": DIGEST.hex(), **entry.about()}, arrays)


def write_chains(root: Path, number: int, ready: int) -> None:
    directory = NamespaceDirectory.hold(root, DIGEST, {"test": 1})
    assert directory is not None
    catalogue = Catalogue(directory.path / "index.sqlite")
    catalogue.load(directory, 1.0)
    writer = Writer(directory, catalogue, 1 << 22, lambda: 1.0 + number)
    os.write(ready, b"!")
    for chain in range(1000):
        parent = b""
        for index in range(CHAIN):
            name = f"{number}/{chain}/{index}".encode().ljust(32, b".")
            kind = "state" if index == CHAIN - 1 else "block"
            entry = Entry(kind, name, parent, 256 * index, b"", 0, 0.0)
            writer.put(entry, record(entry), frozenset())
            parent = name
        writer.settle()


def prove(root: Path, report: dict[str, int]) -> None:
    directory = NamespaceDirectory.hold(root, DIGEST, {"test": 1})
    assert directory is not None
    before = [path for _, path in directory.files()]
    catalogue = Catalogue(directory.path / "index.sqlite")
    catalogue.load(directory, 1e6)
    entries = catalogue.entries()
    known = {directory.file(entry.kind, entry.name) for entry in entries}
    report["cut_short"] += len(before) > len(known)
    report["left_over"] += {path for _, path in directory.files()} != known
    names = {entry.name for entry in entries}
    for entry in entries:
        found = read(
            directory.file(entry.kind, entry.name),
            {"ns": DIGEST.hex(), **entry.about()},
        )
        right = content(entry.name).tobytes() == found.arrays["rows.0.0"].data.tobytes()
        report["wrong"] += not right
        report["read"] += 1
        report["orphans"] += bool(entry.parent) and entry.parent not in names
    catalogue.close()
    directory.release()


def main() -> None:
    root, rounds = Path(sys.argv[1]), int(sys.argv[2])
    generator = random.Random(sys.argv[3])
    report = dict.fromkeys(
        ("killed", "wrong", "left_over", "orphans", "read", "cut_short"), 0
    )
    for number in range(rounds):
        waiting, ready = os.pipe()
        child = os.fork()
        if not child:
            write_chains(root, number, ready)
            os._exit(0)
        os.read(waiting, 1)
        os.close(waiting)
        os.close(ready)
        time.sleep(generator.uniform(0.0, 0.04))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        report["killed"] += os.WIFSIGNALED(status)
        prove(root, report)
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
