# SPDX-License-Identifier: Apache-2.0
"""What is found after every moment at which writing may have ended.

The directory is copied at each step of the writer: within every array, between a
record's name and its row in the index, between a row's end and its file's. Each copy is
opened as the next engine would. A killed process leaves what it wrote; where the power
fails, the latest file may be cut short or empty as well.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from splashpy.cache.disk import record, writer
from splashpy.cache.disk.catalogue import Catalogue
from splashpy.cache.plan import Marks

FIRST = [i * 61 % 997 for i in range(400)]
ANSWER = list(range(500, 530))
NEXT = [*FIRST, *ANSWER, *(i * 17 % 499 for i in range(300))]
OTHER = [7 + i * 13 % 800 for i in range(600)]
MARKS = Marks(system=300, unstable=3)


@dataclass
class Crashes:
    """Copies of a directory, with the step after which each was made."""

    root: Path
    copies: Path
    steps: list[tuple[str, Path]] = field(default_factory=list)

    def after(self, step: str) -> None:
        copy = self.copies / f"{len(self.steps)}"
        shutil.copytree(self.root, copy)
        self.steps.append((step, copy))

    def follow(self, patch: pytest.MonkeyPatch) -> None:
        """Make copies from now on."""

        def opened(*arguments: Any, **names: Any) -> Halves:
            return Halves(open(*arguments, **names), self)  # noqa: PTH123

        patch.setattr(record, "open", opened, raising=False)
        for owner, name, step in (
            (writer, "write", "named"),
            (Catalogue, "save", "listed"),
            (Catalogue, "drop", "dropped"),
            (writer, "remove", "removed"),
        ):
            patch.setattr(owner, name, self._then(getattr(owner, name), step))

    def _then(self, work: Callable[..., Any], step: str) -> Callable[..., Any]:
        def working(*arguments: Any, **names: Any) -> Any:
            done = work(*arguments, **names)
            self.after(step)
            return done

        return working


@dataclass
class Halves:
    """A file that is written in halves, with a crash after each."""

    file: Any
    crashes: Crashes

    def write(self, data: Any) -> None:
        whole = memoryview(data).cast("B")
        for half in (whole[: len(whole) // 2], whole[len(whole) // 2 :]):
            self.file.write(half)
            self.file.flush()
            self.crashes.after("half")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


def records(root: Path) -> list[Path]:
    return sorted(root.glob("*/[btd]/*/*"))


@pytest.fixture
def reopened(on_disk: Callable) -> Callable[[str, Path], Any]:
    """A reader of a copy, whose files must be those that are listed."""

    def reopen(kind: str, copy: Path) -> Any:
        asking = on_disk(kind, root=copy)
        tier = asking.cache._disk
        entries = tier._catalogue.entries()
        files = {tier._directory.file(each.kind, each.name) for each in entries}
        assert set(records(copy)) == files
        return asking

    return reopen


def crashes(
    kind: str, on_disk: Callable, tmp_path: Path, prompt: list[int], room: int
) -> list[tuple[str, Path]]:
    """What is left of a second prompt's writing, after a first one was written."""
    asking = on_disk(kind)
    asking.ask(FIRST, ANSWER, marks=MARKS)
    asking.write()
    written = sum(path.stat().st_size for path in records(tmp_path / "kv"))
    asking = on_disk(kind, quota=written + room)
    found = Crashes(tmp_path / "kv", tmp_path / "copies")
    found.after("nothing")
    with pytest.MonkeyPatch.context() as patch:
        found.follow(patch)
        for _ in range(2):  # what is reused is written even where others have to go
            asking.ask(prompt, ANSWER, marks=MARKS)
            asking.write()
        asking.cache.close(20)
    return found.steps


def test_a_next_turn_is_found_as_far_as_it_was_written(
    kind: str, on_disk: Callable, reopened: Callable, tmp_path: Path
) -> None:
    steps = crashes(kind, on_disk, tmp_path, NEXT, 1 << 30)
    assert {"half", "named", "listed"} <= {step for step, _ in steps}
    reached = [reopened(kind, copy).ask(NEXT, ANSWER).resumed for _, copy in steps]
    assert reached[0] >= 428  # what was there before
    assert reached == sorted(reached)
    assert reached[-1] == len(NEXT) - MARKS.unstable


def test_where_the_power_failed_a_torn_file_costs_what_it_held_only(
    kind: str, on_disk: Callable, reopened: Callable, tmp_path: Path
) -> None:
    steps = crashes(kind, on_disk, tmp_path, NEXT, 1 << 30)
    draw = random.Random(3)
    before = {path.name for path in records(steps[0][1])}
    torn = 0
    for step, copy in steps:
        fresh = [path for path in records(copy) if path.name not in before]
        if step != "listed" or not fresh:
            continue
        latest = max(fresh, key=lambda path: path.stat().st_mtime_ns)
        data = latest.read_bytes()
        latest.write_bytes(data[: draw.choice((0, 8, draw.randrange(len(data))))])
        found = reopened(kind, copy).ask(NEXT, ANSWER)
        assert found.resumed >= 428
        torn += found.damaged
    assert torn > 0


def test_what_has_to_go_is_listed_or_gone_at_any_moment(
    kind: str, on_disk: Callable, reopened: Callable, tmp_path: Path
) -> None:
    steps = crashes(kind, on_disk, tmp_path, OTHER, 9_000)
    assert {"dropped", "removed"} <= {step for step, _ in steps}
    for step, copy in steps:
        if step != "half":
            asking = reopened(kind, copy)
            for prompt in (FIRST, OTHER):
                asking.ask(prompt, ANSWER)  # checks every row it is given
