# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny

from splashpy.cache.disk import arrays
from splashpy.drafting.drafter import Drafter
from splashpy.drafting.pace import FREE, Costs
from splashpy.engine import accounts, loading, memory_watch, timing
from splashpy.engine import engine as engine_module
from splashpy.engine.engine import Engine, LoadFailed
from splashpy.engine.loading import Loaded, LoadRequest
from splashpy.engine.memory_watch import MemoryWatch
from splashpy.engine.pulse import UNIT_SECONDS, Pulse
from splashpy.engine.request import (
    Failed,
    Finished,
    GenerationRequest,
    TokensCommitted,
    Waiting,
)
from splashpy.models.target import Forward, Target
from splashpy.protocol import (
    LoadOptions,
    LoadProgress,
    Log,
    Memory,
    Phases,
    Pressure,
    Shed,
)
from splashpy.verification.sampling import SamplingParams


class Driver:
    """An engine whose events are collected, as a frontend would."""

    def __init__(self) -> None:
        self.events: queue.Queue[Any] = queue.Queue()
        self.threads: set[str] = set()
        self.engine = Engine(self.emit)

    def emit(self, event: Any) -> None:
        self.threads.add(threading.current_thread().name)
        self.events.put(event)

    def until(self, kinds: Any) -> list[Any]:
        seen = []
        while not seen or not isinstance(seen[-1], kinds):
            seen.append(self.events.get(timeout=60))
        return seen

    def load(
        self,
        directory: Path,
        packaged: Path | None = None,
        *,
        paced: bool = True,
        context: int = 512,
        **options: Any,
    ) -> list[Any]:
        config = json.loads((directory / "config.json").read_text())
        self.engine.load(
            LoadRequest(
                directory=directory,
                config=config,
                context_max=context,
                options=LoadOptions(**options),
                draft=packaged,
                paced=paced,
            )
        )
        return self.until((Loaded, LoadFailed))

    def ask(self, request_id: str = "a", **fields: Any) -> None:
        self.engine.submit(
            GenerationRequest(
                id=request_id,
                token_ids=fields.pop("prompt", tuple(range(20))),
                sampling=SamplingParams(),
                seed=1,
                **{"max_new_tokens": 12, **fields},
            )
        )

    def answer(self, request_id: str = "a", **fields: Any) -> list[Any]:
        self.ask(request_id, **fields)
        return self.until((Finished, Failed))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.engine.close(10)


def tokens(events: list[Any]) -> list[int]:
    return [t for e in events if isinstance(e, TokensCommitted) for t in e.token_ids]


def test_a_model_loads_and_answers_again_and_again(driver: Driver, model: Path) -> None:
    loading = driver.load(model, lookup=True)
    assert isinstance(loading[0], LoadProgress)
    assert isinstance(loading[-1], Loaded)
    first = driver.answer("a")
    second = driver.answer("b")
    assert len(tokens(first)) == 12
    assert tokens(first) == tokens(second)
    assert second[-1].cached_tokens == 19
    assert driver.threads == {"splashpy-engine"}


def test_a_second_model_replaces_the_first(driver: Driver, model: Path) -> None:
    driver.load(model)
    driver.answer("a")
    assert isinstance(driver.load(model, no_draft=True)[-1], Loaded)
    assert len(tokens(driver.answer("b"))) == 12


def test_a_model_that_does_not_load_leaves_the_engine_usable(
    driver: Driver, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt9"}))
    failed = driver.load(tmp_path)[-1]
    assert isinstance(failed, LoadFailed)
    assert failed.error.code == "E-MODEL-KIND"
    assert isinstance(driver.load(model)[-1], Loaded)


def test_of_a_model_that_loads_in_half_nothing_stays(
    driver: Driver, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no such device")

    with monkeypatch.context() as patch:
        patch.setattr(engine_module, "open_cache", fail)
        failed = driver.load(model)[-1]
    assert "no such device" in failed.error.message
    driver.ask()
    refused = driver.until(Failed)[-1]
    assert refused.error.message == "no model is loaded"
    assert driver.engine._loaded is None
    assert isinstance(driver.load(model)[-1], Loaded)


def test_requests_wait_for_each_other_in_order(driver: Driver, model: Path) -> None:
    driver.load(model, max_concurrent=1)
    for name in "abc":
        driver.ask(name)
    seen = []
    while sum(isinstance(event, Finished) for event in seen) < 3:
        seen.append(driver.events.get(timeout=60))
    assert [e.id for e in seen if isinstance(e, Finished)] == ["a", "b", "c"]
    waiting = {e.id: e.position for e in seen if isinstance(e, Waiting)}
    assert waiting == {"b": 1, "c": 2} or set(waiting) <= {"b", "c"}


def test_a_running_and_a_waiting_request_can_be_cancelled(
    driver: Driver, model: Path
) -> None:
    driver.load(model, max_concurrent=1)
    driver.ask("long", max_new_tokens=400)
    driver.ask("waiting")
    driver.until(TokensCommitted)
    driver.engine.cancel("waiting")
    driver.engine.cancel("long")
    ended = {}
    while len(ended) < 2:
        event = driver.events.get(timeout=60)
        if isinstance(event, Finished):
            ended[event.id] = event.reason
    assert ended == {"long": "cancelled", "waiting": "cancelled"}
    assert len(tokens(driver.answer("after"))) == 12


def test_cancelling_an_unknown_request_does_nothing(
    driver: Driver, model: Path
) -> None:
    driver.load(model)
    driver.engine.cancel("nobody")
    assert driver.answer("nobody")[-1].reason == "length"


def test_a_failed_request_does_not_touch_the_next(driver: Driver, model: Path) -> None:
    driver.load(model)
    failed = driver.answer("a", prompt=tuple(range(250)) * 3)[-1]
    assert isinstance(failed, Failed)
    assert failed.error.code == "E-CONTEXT"
    assert not failed.fatal
    assert len(tokens(driver.answer("b"))) == 12


def test_nan_fails_one_request_and_the_others_finish(
    driver: Driver, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = driver.load(model)[-1]
    forward = loaded.target.forward

    def poisoned(state: Any, token_ids: Any, *, rows: int) -> Any:
        out = forward(state, token_ids, rows=rows)
        if 7 not in token_ids.tolist():
            return out
        return Forward(out.logits * float("nan"), out.features)

    monkeypatch.setattr(loaded.target, "forward", poisoned)
    driver.ask("sound", prompt=(1, 2, 3))
    driver.ask("poisoned", prompt=(7, 8, 9))
    driver.ask("after", prompt=(4, 5, 6))
    ended: dict[str, Any] = {}
    while len(ended) < 3:
        event = driver.events.get(timeout=60)
        if isinstance(event, Finished | Failed):
            ended[event.id] = event
    assert ended["poisoned"].error.code == "E-NAN"
    assert not ended["poisoned"].fatal
    assert isinstance(ended["sound"], Finished)
    assert isinstance(ended["after"], Finished)


def test_a_packaged_drafter_that_does_not_fit_is_left_out_with_the_reason(
    driver: Driver, model: Path, tmp_path: Path
) -> None:
    other = tiny.write_drafter(tmp_path / "draft", num_target_layers=9)
    loaded = driver.load(model, other, lookup=True)[-1]
    assert loaded.draft.state == "lookup"
    assert "9 target layers" in loaded.draft.reason
    assert len(tokens(driver.answer("a"))) == 12


def test_a_drafter_that_was_asked_for_and_does_not_fit_is_refused(
    driver: Driver, model: Path, tmp_path: Path
) -> None:
    other = tiny.write_drafter(tmp_path / "draft", num_target_layers=9)
    failed = driver.load(model, draft=str(other))[-1]
    assert isinstance(failed, LoadFailed)
    assert failed.error.code == "E-PAIR"
    assert "9 target layers" in failed.error.why


def test_a_fitting_drafter_drafts_beside_lookup(
    driver: Driver, model: Path, tmp_path: Path
) -> None:
    fits = tiny.write_drafter(tmp_path / "draft")
    for options in ({}, {"draft_bits": 8}, {"block_size": 4}):
        loaded = driver.load(model, fits, paced=False, **options)[-1]
        assert loaded.draft.state == "active"
        assert loaded.drafter.costs.model == FREE
        assert loaded.draft_bytes > 0
        drafted = driver.answer("a", prompt=tuple(range(20)) * 2)
        plain = driver.answer("b", prompt=tuple(range(20)) * 2, draft=False)
        assert tokens(drafted) == tokens(plain)
        assert sum(e.drafted for e in drafted if isinstance(e, TokensCommitted)) > 0


def test_a_drafter_that_never_pays_here_hardly_drafts_and_changes_nothing(
    driver: Driver, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given, since a busy machine may time anything; without a time of a plain step
    # nothing is learned from the clock later either.
    dear = Costs(((2, 1.9), (7, 5.2), (8, 5.9)), draft=1.5)
    timed: list[list[int]] = []

    def measure(target: Target, rows: list[int], drafter: Drafter) -> Costs:
        timed.append(sorted(rows))
        return dear

    monkeypatch.setattr(timing, "measure_costs", measure)
    fits = tiny.write_drafter(tmp_path / "draft")
    loaded = driver.load(model, fits)[-1]
    assert loaded.draft.state == "active"
    assert timed == [[2, 7, 8]]
    drafted = driver.answer("a", max_new_tokens=200)
    plain = driver.answer("b", draft=False, max_new_tokens=200)
    assert tokens(drafted) == tokens(plain)
    cycles = [e for e in drafted if isinstance(e, TokensCommitted)]
    assert sum(e.drafted > 0 for e in cycles) < 0.1 * len(cycles)


def test_taps_that_do_not_hold_leave_lookup_on(
    driver: Driver, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = tiny.write_drafter(tmp_path / "draft")
    monkeypatch.setattr(loading, "check_taps", lambda *_: "logits with taps differ")
    loaded = driver.load(model, draft=str(draft), lookup=True)[-1]
    assert loaded.draft.state == "lookup"
    assert "logits with taps differ" in loaded.draft.reason
    off = driver.load(model, draft=str(draft), lookup=False)[-1]
    assert off.draft.state == "off"


def test_a_request_without_a_model_fails(driver: Driver) -> None:
    assert isinstance(driver.answer("a")[-1], Failed)


def test_closing_stops_a_long_answer(model: Path) -> None:
    driver = Driver()
    driver.load(model)
    driver.ask("long", max_new_tokens=400)
    driver.until(TokensCommitted)
    driver.engine.close(10)
    assert not driver.engine._thread.is_alive()


def test_what_is_kept_for_later_reaches_the_disk_when_the_engine_ends(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_FLUSH_SECONDS", 60.0)
    prompt = tuple(i * 7 % 250 for i in range(2100))
    options = {"no_draft": True, "cache_dir": str(tmp_path), "cache_disk": 1 << 30}
    found = []
    for _ in range(2):
        driver = Driver()
        driver.load(model, context=2300, **options)
        found.append(driver.answer("a", prompt=prompt, max_new_tokens=2)[-1])
        driver.engine.close(60)
    assert [event.cached_tokens >= 2048 for event in found] == [False, True]


def test_switching_drafting_off_for_one_request_keeps_the_text(
    driver: Driver, model: Path
) -> None:
    driver.load(model, lookup=True)
    prompt = tuple(range(20)) * 3
    with_drafts = driver.answer("a", prompt=prompt)
    without = driver.answer("b", prompt=prompt, draft=False)
    assert tokens(with_drafts) == tokens(without)
    assert all(e.drafted == 0 for e in without if isinstance(e, TokensCommitted))


def test_a_computer_short_of_memory_gets_a_text_set_aside_and_it_goes_on_later(
    driver: Driver, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_watch, "LOOK_SECONDS", 0.0)
    driver.load(model, no_draft=True)
    looks = iter(["critical"] * 8)
    asked = threading.Event()
    asked.set()

    def level() -> Pressure:
        assert asked.wait(60)
        lanes = driver.engine._lanes
        both = lanes is not None and lanes.phases().total() == 2
        return next(looks, "normal") if both else "normal"

    driver.engine._memory = MemoryWatch(driver.emit, level, room=lambda: None)
    solo = {
        name: tokens(driver.answer(name, prompt=(first, 2, 3), max_new_tokens=60))
        for name, first in (("a", 5), ("b", 9))
    }
    asked.clear()
    driver.ask("a", prompt=(5, 2, 3), max_new_tokens=60)
    driver.ask("b", prompt=(9, 2, 3), max_new_tokens=60)
    asked.set()
    seen: list[Any] = []
    while sum(isinstance(event, Finished) for event in seen) < 2:
        seen.append(driver.events.get(timeout=60))
    (shed,) = [e for e in seen if isinstance(e, Shed) and e.action == "suspend"]
    assert shed.level == "critical"
    assert shed.id == "b"
    assert any(isinstance(e, Phases) and e.suspended for e in seen)
    for name, expected in solo.items():
        assert tokens([e for e in seen if getattr(e, "id", "") == name]) == expected


def test_an_engine_with_nothing_to_do_gives_back_what_others_need(
    driver: Driver, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_IDLE_LOOK_SECONDS", 0.01)
    driver.load(model, no_draft=True)
    driver.answer()
    driver.engine._memory = MemoryWatch(
        driver.emit, lambda: "critical", room=lambda: None
    )
    shed = driver.until(Shed)[-1]
    assert (shed.level, shed.action) == ("critical", "states")
    assert driver.answer("b")[-1].cached_tokens == 0


def test_a_copy_there_is_no_memory_for_is_not_written_and_the_engine_goes_on(
    driver: Driver, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()

    def refuse(*_: Any) -> None:
        refused.set()
        raise RuntimeError("[malloc] Unable to allocate 1 bytes.")

    monkeypatch.setattr(arrays, "rows_out", refuse)
    driver.load(model, no_draft=True, cache_dir=str(tmp_path), cache_disk=1 << 28)
    prompt = tuple(i * 7 % 250 for i in range(300))
    read = driver.answer("a", prompt=prompt, prefill_only=True)
    assert isinstance(read[-1], Finished)
    assert refused.wait(60)
    assert driver.answer("b", prompt=prompt)[-1].cached_tokens == 299


def test_a_pass_that_does_not_come_back_is_known_to_other_threads(
    driver: Driver, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = driver.load(model, no_draft=True)[-1].target
    now, hanging, free = [0.0], threading.Event(), threading.Event()
    driver.engine._pulse = Pulse(lambda: now[0])
    forward = target.forward

    def slow(state: Any, token_ids: Any, *, rows: int) -> Any:
        now[0] += 0.1
        if state.length == 40:
            hanging.set()
            assert free.wait(60)
        return forward(state, token_ids, rows=rows)

    monkeypatch.setattr(target, "forward", slow)
    driver.ask("a", max_new_tokens=40)
    assert hanging.wait(60)
    assert driver.engine.overdue() == ""
    now[0] += UNIT_SECONDS + 1
    assert "a pass of the model has taken 61 seconds" in driver.engine.overdue()
    free.set()
    events = driver.until(Finished)
    assert len(tokens(events)) == 40
    assert driver.engine.overdue() == ""
    (told,) = [e.text for e in events if isinstance(e, Log)]
    assert told.startswith("slow: writing 1 text(s) took 61.")


def test_a_request_without_memory_is_refused_and_the_next_one_is_served(
    driver: Driver, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = [2_000_000_000]
    monkeypatch.setattr(
        "splashpy.engine.engine.open_ledger",
        lambda *given, **_: accounts.open_ledger(*given, in_use=lambda: used[0]),
    )
    driver.load(model, max_memory=1_000_000_000)
    refused = driver.answer("a")[-1]
    assert isinstance(refused, Failed)
    assert refused.error.code == "E-MEMORY"
    used[0] = 0
    events = driver.answer("b")
    told = [event.ledger for event in events if isinstance(event, Memory)]
    assert told[-1].refused == 1
    assert told[-1].refusal == refused.error.message
    assert told[-1].held.lanes == 0
    assert told[-1].held.runs > 0
    assert isinstance(events[-1], Finished)
