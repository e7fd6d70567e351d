# SPDX-License-Identifier: Apache-2.0
"""The tier on disk as the engine uses it: what survives, what is refused, what goes."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import sqlite3
import stat
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest

from splashpy.cache.disk import room, writer
from splashpy.cache.disk.catalogue import Catalogue, Entry
from splashpy.cache.disk.directory import NamespaceDirectory, in_use
from splashpy.cache.disk.record import BadRecord
from splashpy.cache.disk.room import (
    EXPIRY_SECONDS,
    WriteAllowance,
    default_quota,
)
from splashpy.cache.disk.tier import DraftSide
from splashpy.cache.plan import Marks
from splashpy.models.dflash2_context import DrafterContext

LONG = [i * 61 % 997 for i in range(700)]
ANSWER = list(range(500, 530))
MARKS = Marks(system=300, unstable=3)


def files(root: Path) -> list[Path]:
    return sorted(root.glob("kv/*/*/*/*"))


def test_a_restart_finds_everything_again(kind: str, on_disk: Callable) -> None:
    asking = on_disk(kind)
    asking.ask(LONG, ANSWER, marks=MARKS)
    asking.write()

    again = on_disk(kind).ask(LONG, ANSWER, marks=MARKS)
    assert again.tier == "disk"
    assert again.resumed == 697
    turn = on_disk(kind).ask([*LONG, *ANSWER[:-1], 1, 2], marks=MARKS)
    assert turn.resumed == 729
    system = on_disk(kind).ask([*LONG[:300], 9, 9, 9], marks=MARKS)
    assert system.resumed == 300


def test_a_drafters_context_comes_back_as_far_as_it_reached(
    kind: str, on_disk: Callable, filled: Callable
) -> None:
    side = DraftSide(b"d" * 32, lambda: DrafterContext([64]))
    cache = on_disk(kind, draft=side).cache
    context = DrafterContext([64])
    rows = mx.arange(63)[None, None, :, None].astype(mx.bfloat16)
    context.layers[0].fill([rows, -rows])
    context.position = 700
    state = filled(kind, LONG[:690])
    state.keep()
    read = {690: cache.place("stable")}
    for lane in state.lanes:
        if hasattr(lane, "update_and_fetch"):
            tail = mx.array(LONG[690:], dtype=mx.float32)[None, None, :, None]
            lane.update_and_fetch(tail, -tail)
        else:
            lane.replace(700, lane.arrays)
    cache.insert(LONG, state, draft=context, places=read)
    while cache.write_some():
        pass
    assert cache.settle(20)

    other = DraftSide(b"e" * 32, side.new_context)
    assert on_disk(kind, draft=other).cache.take([*LONG, 1]).draft is None
    whole = on_disk(kind, draft=side).cache.take([*LONG, 1])
    assert (whole.found.tier, whole.found.resumed) == ("disk", 700)
    assert whole.draft.position == 700
    assert whole.draft.layers[0].rows[0][0, 0, :, 0].tolist() == list(range(63))
    stable = on_disk(kind, draft=side).cache.take([*LONG[:690], 999, 999])
    assert (stable.found.resumed, stable.draft.position) == (690, 690)
    assert stable.draft.layers[0].rows[0][0, 0, :, 0].tolist() == list(range(53))


def test_attention_is_resumed_within_what_is_on_disk(on_disk: Callable) -> None:
    asking = on_disk("attention")
    asking.ask(LONG, ANSWER)
    asking.write()
    found = on_disk("attention").ask([*LONG[:600], 9, 9, 9])
    assert (found.tier, found.resumed) == ("disk", 512)
    assert found.shared == 600  # told to the token, though rows come in blocks
    assert found.was == tuple(LONG[600:608])


def test_rows_are_claimed_for_whole_blocks_where_memory_is_short(
    on_disk: Callable,
) -> None:
    asking = on_disk("attention")
    asking.ask(LONG, ANSWER)
    asking.write()
    claimed: list[int] = []
    short = SimpleNamespace(
        fits=lambda rows: False,
        make_room=lambda rows: False,
        cover=lambda state, rows: claimed.append(state.reserved(rows)),
    )
    taken = on_disk("attention").cache.take(LONG[:512], 4096, short)
    assert taken.found.resumed == 511
    assert claimed == [taken.state.reserved(0)] == [512]


def test_a_change_in_the_first_block_is_found_on_disk(on_disk: Callable) -> None:
    asking = on_disk("attention")
    asking.ask(LONG, ANSWER)
    asking.write()
    found = on_disk("attention").ask([*LONG[:110], 9, *LONG[111:]])
    assert (found.resumed, found.shared, found.reason) == (0, 110, "short")
    assert found.was == tuple(LONG[110:118])


def test_memory_is_preferred_where_it_has_as_much(kind: str, on_disk: Callable) -> None:
    asking = on_disk(kind)
    asking.ask(LONG, ANSWER)
    asking.write()
    assert asking.ask(LONG, ANSWER).tier == "ram"


def test_what_is_evicted_from_memory_comes_back_from_disk(
    kind: str, on_disk: Callable
) -> None:
    asking = on_disk(kind, budget=1)
    asking.ask(LONG, ANSWER, marks=MARKS)
    asking.write()
    asking.ask([7] * 300, ANSWER)
    found = asking.ask(LONG, ANSWER, marks=MARKS)
    assert (found.tier, found.resumed) == ("disk", 697)


def test_short_prompts_are_not_written(on_disk: Callable, tmp_path: Path) -> None:
    asking = on_disk("attention", shortest=2048)
    asking.ask(LONG, ANSWER)
    asking.write()
    assert files(tmp_path) == []


def test_growing_turns_take_disk_for_their_new_tokens_only(
    kind: str, on_disk: Callable, tmp_path: Path
) -> None:
    asking = on_disk(kind)
    prompt, sizes = LONG[:300], []
    for turn in range(20):
        asking.ask(prompt, ANSWER)
        asking.write()
        sizes.append(sum(path.stat().st_size for path in files(tmp_path)))
        prompt = [*prompt, *ANSWER, *(turn * 7 + i for i in range(226))]
    steps = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(steps) < 1.6 * min(steps)


def test_only_the_owner_may_look_in(on_disk: Callable, tmp_path: Path) -> None:
    asking = on_disk("hybrid")
    asking.ask(LONG, ANSWER)
    asking.write()
    for path in (tmp_path / "kv").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert stat.S_IMODE((tmp_path / "kv").stat().st_mode) == 0o700


def test_another_namespace_is_a_clean_miss(kind: str, on_disk: Callable) -> None:
    asking = on_disk(kind)
    asking.ask(LONG, ANSWER)
    asking.write()
    other = on_disk(kind, digest=b"m" * 32)
    assert other.ask(LONG).reason == "empty"
    # A directory of the same sixteen digits whose identity is another begins anew.
    twin = on_disk(kind, digest=b"n" * 16 + b"x" * 16)
    assert twin.ask(LONG).resumed == 0


def test_a_record_moved_to_another_namespace_is_refused(
    on_disk: Callable, tmp_path: Path
) -> None:
    asking = on_disk("hybrid")
    asking.ask(LONG, ANSWER)
    asking.write()
    asking.cache.close(20)
    (own,) = (tmp_path / "kv").iterdir()
    other = tmp_path / "kv" / (b"m" * 8).hex()
    own.rename(other)
    identity = {"model": (b"m" * 32).hex()}
    (other / "NAMESPACE.json").write_text(json.dumps(identity))
    found = on_disk("hybrid", digest=b"m" * 32).ask(LONG, ANSWER)
    assert found.resumed == 0


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[:-40],
    "length": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "header": lambda data: data.replace(b'"dtype"', b'"dtipe"', 1),
    "payload": lambda data: data[:-1] + bytes([data[-1] ^ 4]),
    "longer": lambda data: data + b"\0\0\0\0",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("folder", ["b", "t"])
def test_a_damaged_record_is_a_miss_and_never_an_answer(
    damage: str, folder: str, kind: str, on_disk: Callable, tmp_path: Path
) -> None:
    asking = on_disk(kind)
    asking.ask(LONG, ANSWER)
    asking.write()
    asking.cache.close(20)
    broken = sorted((tmp_path / "kv").glob(f"*/{folder}/*/*"))
    for path in broken:
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    asking = on_disk(kind)
    found = asking.ask(LONG, ANSWER)  # checks every row it is given
    assert found.resumed == (512 if (kind, folder) == ("attention", "t") else 0)
    assert found.damaged > 0
    asking.write()
    assert on_disk(kind).ask(LONG, ANSWER).resumed == 699  # written again


@pytest.mark.parametrize("damage", ["missing", "broken", "foreign", "nonsense"])
def test_an_index_that_cannot_be_read_is_made_again(
    damage: str, kind: str, on_disk: Callable, tmp_path: Path
) -> None:
    asking = on_disk(kind)
    asking.ask(LONG, ANSWER)
    asking.write()
    asking.cache.close(20)
    (index,) = (tmp_path / "kv").glob("*/index.sqlite")
    if damage == "missing":
        index.unlink()
    elif damage == "broken":
        index.write_bytes(b"\x00\xff" * 5000)
    elif damage == "nonsense":
        with closing(sqlite3.connect(index)) as database, database:
            database.execute("UPDATE record SET kind = 'x', tail = 5, position = NULL")
    else:
        index.write_bytes(index.read_bytes()[:3000])
    assert on_disk(kind).ask(LONG, ANSWER).resumed == 699


@pytest.mark.parametrize("trouble", ["a folder", "a full disk"])
def test_an_index_that_cannot_be_made_only_stops_writing(
    trouble: str, on_disk: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = on_disk("hybrid")
    asking.ask(LONG, ANSWER)
    asking.write()
    asking.cache.close(20)
    (index,) = (tmp_path / "kv").glob("*/index.sqlite")
    index.unlink()
    if trouble == "a folder":
        (index / "in the way").mkdir(parents=True)
    else:

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Catalogue, "_change", full)
    assert on_disk("hybrid").ask(LONG, ANSWER).resumed == 699


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "blocks"},
        {"kind": None},
        {"name": 7},
        {"name": "zz"},
        {"position": "-1"},
        {"position": "9" * 30},
        {"position": None},
        {"tail": []},
    ],
    ids=repr,
)
def test_a_header_that_makes_no_sense_is_no_record(change: dict[str, Any]) -> None:
    entry = Entry("state", b"n" * 32, b"", 700, b"", 9, 1.0)
    assert Entry.of(entry.about(), 9, 1.0) == entry
    with pytest.raises(BadRecord, match="the header is damaged"):
        Entry.of({**entry.about(), **change}, 9, 1.0)


def test_what_a_killed_engine_left_is_cleaned_up(
    on_disk: Callable, tmp_path: Path
) -> None:
    asking = on_disk("hybrid")
    asking.ask(LONG, ANSWER)
    asking.write()
    asking.cache.close(20)
    whole = files(tmp_path)
    (whole[0].parent / "0123.tmp-77-0").write_bytes(b"half a record")
    (whole[0].parent / "0123.spkv").write_bytes(b"never listed")
    on_disk("hybrid")
    assert files(tmp_path) == whole


def test_a_full_disk_only_stops_writing(
    kind: str, on_disk: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = on_disk(kind)
    asking.ask(LONG, ANSWER)
    asking.write()

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    asking = on_disk(kind)
    monkeypatch.setattr(writer, "write", full)
    asking.ask([8] * 600, ANSWER)
    asking.write()
    assert "No space left" in asking.cache._disk.why_not_written
    assert asking.ask(LONG, ANSWER).tier == "disk"
    monkeypatch.undo()
    asking.ask([9] * 600, ANSWER)
    asking.write()
    assert on_disk(kind).ask([9] * 600).resumed == 0  # closed for this process


def test_a_run_that_is_given_up_is_not_held_on_to_by_its_writing(
    kind: str, on_disk: Callable
) -> None:
    asking = on_disk(kind)
    asking.ask(LONG, ANSWER, marks=MARKS)
    assert asking.cache.write_some()
    state = weakref.ref(asking.cache.runs[0].state)
    asking.cache.take([3] * 40)  # a request begins, so writing is put off
    asking.cache.shrink(0)
    assert state() is None
    assert not asking.cache.write_some()


@pytest.mark.parametrize("kind", ["window", "hybrid"])
def test_a_place_that_is_given_up_before_it_was_written_is_not_written(
    kind: str, on_disk: Callable
) -> None:
    asking = on_disk(kind)
    asking.ask(LONG, ANSWER, marks=MARKS)
    (run,) = asking.cache.runs
    run.give_up(697)
    asking.write()
    assert on_disk(kind).ask([*LONG[:697], 5, 5], ANSWER).resumed == 300


def test_without_memory_for_copies_nothing_is_written(
    kind: str, on_disk: Callable, tmp_path: Path
) -> None:
    asking = on_disk(kind)
    asking.cache.fits = lambda nbytes: nbytes == 0
    asking.ask(LONG, ANSWER)
    asking.write()  # comes to an end
    assert files(tmp_path) == []
    assert asking.cache.staged_bytes == 0


def test_copies_are_made_one_by_one_where_memory_is_short(
    kind: str, on_disk: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = on_disk(kind)
    largest, write = 0, writer.write

    def noting(path: Path, record: Any, *, temporary: Path) -> int:
        nonlocal largest
        largest = max(largest, asking.cache.staged_bytes - record.nbytes)
        return write(path, record, temporary=temporary)

    monkeypatch.setattr(writer, "write", noting)
    asking.cache.fits = lambda _: not asking.cache.staged_bytes
    asking.ask(LONG, ANSWER)
    asking.write()
    assert largest == 0
    assert on_disk(kind).ask(LONG, ANSWER).resumed == 699


def test_a_directory_nobody_may_write_to_is_read(
    kind: str, on_disk: Callable, tmp_path: Path
) -> None:
    asking = on_disk(kind)
    asking.ask(LONG, ANSWER)
    asking.write()
    asking.cache.close(20)
    (lock,) = (tmp_path / "kv").glob("*/LOCK")
    lock.unlink()
    lock.mkdir()  # stands for a directory where no lock can be made, for root too
    asking = on_disk(kind)
    assert asking.ask(LONG, ANSWER).resumed == 699
    assert asking.cache._disk.why_not_written


def test_without_a_directory_the_cache_works_in_memory(
    kind: str, on_disk: Callable, tmp_path: Path
) -> None:
    (tmp_path / "kv").write_text("a file where the directory would be")
    asking = on_disk(kind)
    asking.ask(LONG, ANSWER)
    asking.write()
    assert asking.ask(LONG, ANSWER).resumed == 699


def test_the_quota_is_never_exceeded(
    kind: str, on_disk: Callable, tmp_path: Path
) -> None:
    quota, clock = 60_000, map(float, itertools.count(10**9))
    asking = on_disk(kind, quota=quota, clock=lambda: next(clock))
    for start in range(8):
        prompt = [start, *LONG]
        for _ in range(2):
            asking.ask(prompt, ANSWER)
            asking.write()
            assert sum(path.stat().st_size for path in files(tmp_path)) <= quota
    again = on_disk(kind, quota=quota, clock=lambda: next(clock))
    assert again.ask([7, *LONG], ANSWER).tier == "disk"


def test_what_nobody_uses_for_a_week_is_deleted(
    kind: str, on_disk: Callable, tmp_path: Path
) -> None:
    now = 1e9
    asking = on_disk(kind, clock=lambda: now)
    asking.ask(LONG, ANSWER)
    asking.write()
    now += EXPIRY_SECONDS - 10
    asking = on_disk(kind, clock=lambda: now)
    assert asking.ask(LONG, ANSWER).tier == "disk"  # used again
    now += EXPIRY_SECONDS - 10
    assert on_disk(kind, clock=lambda: now).ask(LONG, ANSWER).tier == "disk"
    now += EXPIRY_SECONDS + 10
    asking = on_disk(kind, clock=lambda: now)
    asking.write()
    asking.cache.close(20)
    assert files(tmp_path) == []


@pytest.mark.parametrize("jump", [-1e9, -3600.0, 3600.0, 1e9])
def test_a_clock_that_jumps_costs_at_most_a_miss(
    jump: float, kind: str, on_disk: Callable
) -> None:
    asking = on_disk(kind, clock=lambda: 1e9)
    asking.ask(LONG, ANSWER)
    asking.write()
    asking = on_disk(kind, clock=lambda: 1e9 + jump)
    found = asking.ask(LONG, ANSWER)
    # Records that expired go meanwhile, the deepest perhaps first.
    assert found.resumed in ((0, 512, 699) if jump > EXPIRY_SECONDS else (699,))
    asking.write()
    later = on_disk(kind, clock=lambda: 1e9).ask(LONG, ANSWER)
    assert later.resumed in (0, 512, 699)


def test_a_record_that_had_to_go_does_not_come_back_when_it_is_touched(
    on_disk: Callable, tmp_path: Path
) -> None:
    asking = on_disk("attention")
    asking.ask(LONG, ANSWER)
    asking.write()
    tier = asking.cache._disk
    leaf = next(e for e in tier._catalogue.entries() if e.kind == "state")
    tier._writer.drop(leaf)  # as its room is needed, while a prompt uses it
    tier._writer.touch([leaf])
    assert asking.cache.settle(20)
    assert tier._catalogue.find("state", leaf.name) is None
    listed = sum(entry.nbytes for entry in tier._catalogue.entries())
    assert tier._catalogue.nbytes == listed
    assert sum(path.stat().st_size for path in files(tmp_path)) == listed


def test_a_disk_that_does_not_say_how_full_it_is_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(room.shutil, "disk_usage", fail)
    assert default_quota(tmp_path) == 0


def test_a_day_of_writing_has_a_limit() -> None:
    allowance = WriteAllowance(0.0)
    assert allowance.take(8 << 30, 0.0)
    assert not allowance.take(1 << 30, 60.0)
    assert allowance.take(1 << 30, 3600.0)
    assert not allowance.take(1 << 40, 1e6)
    assert allowance.take(1, -5.0)  # a clock that went back gives nothing


def test_one_engine_holds_a_directory(
    kind: str, on_disk: Callable, tmp_path: Path
) -> None:
    asking = on_disk(kind)
    asking.ask(LONG, ANSWER)
    asking.write()
    (own,) = (tmp_path / "kv").iterdir()
    assert in_use(own)
    held = NamespaceDirectory.hold(tmp_path / "kv", b"n" * 32, {})
    assert held is None
    program = (
        "import sys; from pathlib import Path\n"
        "from splashpy.cache.disk.directory import NamespaceDirectory as D, in_use\n"
        "print(in_use(Path(sys.argv[2])), D.hold(Path(sys.argv[1]), b'n' * 32, {}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "kv"), str(own)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True None\n"
    assert asking.ask(LONG, ANSWER).resumed == 699
    asking.cache.close(20)
    assert not in_use(own)


def test_the_thread_that_writes_cannot_call_mlx() -> None:
    program = (
        "import sys, splashpy.cache.disk.writer\n"
        "assert not [m for m in sys.modules if m.split('.')[0] == 'mlx']"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_killed_at_any_moment_it_leaves_true_records_only(tmp_path: Path) -> None:
    script = Path(__file__).with_name("killed_writer.py")
    seed = str(random.Random(5).random())
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), "100", seed],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["killed"] == 100
    assert report["wrong"] == report["left_over"] == report["orphans"] == 0
    assert report["read"] > 100
    assert report["cut_short"] > 5  # some were killed in the middle of their work
