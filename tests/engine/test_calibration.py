# SPDX-License-Identifier: Apache-2.0
"""Costs of cycles that are kept for the next start."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from splashpy.drafting.pace import Costs
from splashpy.engine import finer_costs, timing
from splashpy.engine.calibration import FORMAT, MOST_ENTRIES, Calibration
from splashpy.engine.loading import Loaded, LoadRequest, load
from splashpy.package.model_directory import ModelDirectory
from splashpy.protocol import LoadOptions

COSTS = Costs(((2, 1.1), (8, 1.7)), draft=0.4, plain_seconds=0.01)
ROWS = [8, 2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "costs.json"


def of(path: Path | None, machine: str = "M", **options: Any) -> Calibration:
    return Calibration(path, {"machine": machine}, **options)


def keep(path: Path, machine: str = "M") -> None:
    """Measured alike at two starts."""
    for _ in range(2):
        of(path, machine).write(COSTS)


def test_what_two_starts_measured_alike_is_read_again(path: Path) -> None:
    of(path).write(COSTS)
    assert of(path).read(ROWS) is None
    of(path).write(COSTS)
    assert of(path).read(ROWS) == COSTS


def test_what_a_busy_machine_measured_is_not_believed(path: Path) -> None:
    busy = replace(COSTS, passes=((2, 1.1), (8, 4.0)))
    keep(path)
    of(path).write(busy)
    assert of(path).read(ROWS) is None
    of(path).write(COSTS)
    assert of(path).read(ROWS) is None
    of(path).write(replace(COSTS, draft=0.45))
    assert of(path).read(ROWS) == replace(COSTS, draft=0.45)


def test_another_machine_has_its_own_costs(path: Path) -> None:
    keep(path)
    assert of(path, "other").read(ROWS) is None
    of(path, "other").write(Costs(((2, 3.0), (8, 9.0)), plain_seconds=1.0))
    assert of(path).read(ROWS) == COSTS


def test_passes_that_were_not_measured_are_not_made_up(path: Path) -> None:
    keep(path)
    assert of(path).read([2, 16]) is None


def test_a_wish_to_measure_again_is_kept(path: Path) -> None:
    keep(path)
    assert of(path, again=True).read(ROWS) is None


def test_without_a_file_nothing_is_kept() -> None:
    of(None).write(COSTS)
    assert of(None).read(ROWS) is None


def test_the_file_does_not_grow_without_end(path: Path) -> None:
    for number in range(MOST_ENTRIES + 3):
        keep(path, str(number))
    assert len(json.loads(path.read_text())["entries"]) == MOST_ENTRIES
    assert of(path, "2").read(ROWS) is None
    assert of(path, "3").read(ROWS) == COSTS


def test_no_half_written_file_stays_behind(path: Path) -> None:
    keep(path)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_directory_that_cannot_be_made_loses_the_costs_only(path: Path) -> None:
    path.parent.write_text("a file where the directory should be")
    keep(path)
    assert of(path).read(ROWS) is None


@given(
    st.one_of(
        st.text(max_size=40),
        st.recursive(
            st.none() | st.floats() | st.text(max_size=5),
            lambda each: (
                st.lists(each, max_size=3)
                | st.dictionaries(st.sampled_from(["format", "entries"]), each)
            ),
            max_leaves=6,
        ).map(json.dumps),
    )
)
def test_whatever_the_file_holds_costs_are_none_or_sound(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.mktemp("costs") / "costs.json"
    path.write_text(text, encoding="utf-8")
    assert of(path).read(ROWS) is None
    keep(path)
    assert of(path).read(ROWS) == COSTS


@pytest.mark.parametrize(
    "entry",
    [
        {"passes": [[2, 1.1], [8, 0.4]]},
        {"passes": [[8, 1.1], [2, 1.4]]},
        {"passes": [[2, 1.1], [8, 1e9]]},
        {"passes": [[2, float("nan")], [8, 1.4]]},
        {"passes": [[2, 1.1], [8]]},
        {"passes": [[float("inf"), 1.1]]},
        {"draft": -1},
        {"draft": "none"},
        {"plain_seconds": float("inf")},
        {"depths": [[1, 0.02], [8, 0.01]]},
        {"depths": [[1, -0.01]]},
        {"shared": [[2, 1]]},
        {"shared": [[2, 1, float("nan")]]},
        {"shared": None},
    ],
)
def test_an_entry_that_makes_no_sense_is_measured_again(
    path: Path, entry: dict[str, Any]
) -> None:
    keep(path)
    document = json.loads(path.read_text())
    document["entries"][of(path).key] |= entry
    path.write_text(json.dumps(document))
    assert of(path).read(ROWS) is None
    assert of(path).trouble == f"{path} has costs that cannot be"
    keep(path)
    assert of(path).trouble == ""


def test_a_file_that_cannot_be_used_is_named_with_the_reason(path: Path) -> None:
    assert of(path).trouble == of(None).trouble == ""
    keep(path)
    assert of(path).trouble == of(path, "another machine").trouble == ""
    path.write_text(json.dumps({"format": FORMAT - 1, "entries": {}}))
    assert of(path).trouble == f"{path} is of another version"
    path.write_text("{")
    assert of(path).trouble == f"{path} is damaged"


def test_what_was_added_later_stays_when_the_rest_is_measured_alike(path: Path) -> None:
    keep(path)
    more = replace(
        COSTS,
        passes=((2, 1.1), (5, 1.4), (8, 1.7)),
        depths=((1, 0.0001), (8, 0.0004)),
        shared=((2, 1, 1.2),),
    )
    of(path).extend(more)
    assert of(path).read(ROWS) == more
    of(path).write(COSTS)
    assert of(path).read(ROWS) == more
    of(path).write(replace(COSTS, draft=3.0))
    of(path).write(replace(COSTS, draft=3.0))
    assert of(path).read(ROWS) == replace(COSTS, draft=3.0)


def test_a_model_is_measured_at_its_first_two_starts_only(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny.write_model(tmp_path / "model")
    draft = tiny.write_drafter(tmp_path / "draft")
    measured = []

    def measure(*arguments: Any) -> Costs:
        measured.append(arguments)
        return Costs(((2, 1.5), (7, 2.0), (8, 2.5)), draft=0.5, plain_seconds=7.0)

    monkeypatch.setattr(timing, "measure_costs", measure)
    monkeypatch.setattr(timing, "MORE_SECONDS", 1e9)
    monkeypatch.setattr(finer_costs, "ODD", float("inf"))
    dearer = [False]
    monkeypatch.setattr(timing, "overrated", lambda *_: dearer[0])

    def started(**changes: Any) -> Loaded:
        options = LoadOptions(draft=str(draft))
        request = LoadRequest.of(ModelDirectory.open(model), options, 64)
        return load(replace(request, costs_file=path, **changes), lambda _: None)

    first, _, third = started(), started(), started()
    assert len(measured) == 2
    kept = third.drafter.costs.model
    assert set(first.drafter.costs.model.passes) <= set(kept.passes)
    assert kept.draft == 0.5
    assert third.timed.kept == ("2 rows", "7 rows", "8 rows", "a draft")
    assert third.timed.measured[:2] == ("a plain step", "3 rows")
    fourth = started()
    assert fourth.timed.measured == ("a plain step",), "everything is known"
    assert fourth.costs.passes == kept.passes
    assert fourth.costs.shared == kept.shared
    assert 0 < kept.plain_seconds < 7.0, "the plain step is timed at every start"
    dearer[0] = True
    assert started().timed.kept == ()
    dearer[0] = False
    assert len(measured) == 3, "what was measured on a busy machine is measured again"
    started(time_again=True)
    assert len(measured) == 4
    (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    started()
    assert len(measured) == 5, "another model is another pair"
