# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import pytest

from splashpy.bench.bench import Bench
from splashpy.bench.environment import mac_facts
from splashpy.bench.filling import fill, note
from splashpy.bench.leg import Leg
from splashpy.bench.schedule import schedule
from splashpy.bench.session import Draw, Session
from splashpy.bench.suites import (
    HUB,
    Question,
    context_questions,
    hub_questions,
    quick_questions,
)

TALK = Question("talk", "7", "chat", ("hello there", "and then?"))


@pytest.fixture
def session(open_session: Callable[..., Session]) -> Session:
    return open_session()


def measured(session: Session, *questions: Question, **wishes: object) -> list[Leg]:
    values = {"trials": 1, "max_tokens": 12, **wishes}
    bench = Bench(session=session, **values)
    return [leg for legs in bench.run(questions) for leg in legs]


def test_arms_take_turns_and_so_does_who_begins() -> None:
    questions = quick_questions()[:3]
    turns = list(schedule(questions, ("draft", "plain"), 2))
    order = [(turn.trial, turn.question.id, turn.arms[0]) for turn in turns]
    assert order == [
        (0, "0", "draft"),
        (0, "1", "plain"),
        (0, "2", "draft"),
        (1, "2", "plain"),
        (1, "1", "draft"),
        (1, "0", "plain"),
    ]


def test_every_arm_answers_every_question_with_the_same_text(session: Session) -> None:
    legs = measured(session, *quick_questions(2), trials=2)
    assert [leg.arm for leg in legs] == ["draft", "plain"] * 4
    assert {leg.outcome for leg in legs if leg.arm == "draft"} == {"identical"}
    for ours, plain in zip(legs[::2], legs[1::2], strict=True):
        assert ours.place == plain.place
        assert ours.completion_tokens == plain.completion_tokens == 12
        assert ours.drafted > 0 == plain.drafted
        assert plain.cycles == 11
        assert sum(ours.committed) == ours.cycles
        assert ours.prefill_seconds > 0 < ours.decode_seconds
        assert ours.peak_bytes > 0


def test_a_second_turn_follows_the_arms_own_answer(session: Session) -> None:
    legs = measured(session, TALK)
    assert [(leg.arm, leg.turn) for leg in legs] == [
        ("draft", 0),
        ("draft", 1),
        ("plain", 0),
        ("plain", 1),
    ]
    assert legs[1].prompt_tokens > legs[0].prompt_tokens + 12
    assert legs[1].prompt_tokens == legs[3].prompt_tokens


def test_drafts_that_change_a_text_are_told(
    session: Session, broken_rule: None
) -> None:
    legs = measured(session, quick_questions()[0])
    assert [leg.outcome for leg in legs] == ["mismatch", ""]


def test_a_seeded_draw_gives_one_text_and_an_unseeded_one_is_not_compared(
    session: Session,
) -> None:
    seeded = measured(session, TALK, draw=Draw(temperature=1.0, seed=5))
    assert [leg.outcome for leg in seeded] == ["identical"] * 2 + [""] * 2
    free = measured(session, TALK, draw=Draw(temperature=1.0))
    assert {leg.outcome for leg in free} == {""}


def test_what_was_measured_before_is_left_out(session: Session) -> None:
    first, second = quick_questions(2)
    done = [leg.place for leg in measured(session, first)]
    bench = Bench(session=session, trials=1, max_tokens=4)
    legs = [leg for legs in bench.run((first, second), done) for leg in legs]
    assert {leg.prompt for leg in legs} == {second.id}


def test_a_wish_to_stop_is_granted_after_the_question(session: Session) -> None:
    seen: list[Leg] = []
    bench = Bench(
        session=session, trials=3, max_tokens=4, stopping=lambda: len(seen) >= 2
    )
    for legs in bench.run(quick_questions()):
        seen += legs
    assert [leg.arm for leg in seen] == ["draft", "plain"]


def test_a_wish_to_stop_ends_a_rest_at_once(session: Session) -> None:
    asked: list[int] = []

    def stopping() -> bool:
        asked.append(1)
        return len(asked) > 1

    bench = Bench(session=session, trials=1, cooldown=1e6, stopping=stopping)
    assert list(bench.run(quick_questions(1))) == []


def test_a_part_of_the_quick_suite_has_all_kinds() -> None:
    assert [question.kind for question in quick_questions(5)] == [
        "chat",
        "code",
        "math",
        "edit",
        "chat",
    ]
    assert len(quick_questions()) == 12


ROWS = {
    "gsm8k": {"question": "Q"},
    "math500": {"problem": "Q"},
    "humaneval": {"prompt": "Q"},
    "mbpp": {"prompt": "Q"},
    "mt-bench": {"turns": ["Q", "R"]},
}


@pytest.mark.parametrize("name", list(HUB))
def test_a_downloaded_row_becomes_a_question(name: str) -> None:
    (question,) = hub_questions(name, [ROWS[name]], 5)
    assert question.turns[0].strip().startswith(("Q", "Write a solution"))
    assert "Q" in question.turns[0]
    assert ("\\boxed{}" in question.turns[0]) == (name in ("gsm8k", "math500"))
    assert len(question.turns) == (2 if name == "mt-bench" else 1)


def test_a_suite_is_shuffled_the_same_way_each_time() -> None:
    rows = [{"prompt": str(number)} for number in range(50)]
    first = [question.id for question in hub_questions("mbpp", rows, 10)]
    assert first == [question.id for question in hub_questions("mbpp", rows, 20)][:10]
    assert first != sorted(first, key=int)
    assert len(hub_questions("mbpp", rows, None)) == 50


def test_a_context_question_is_filled_to_its_length(session: Session) -> None:
    (question,) = context_questions([500])
    text = fill(session, question.turns[0], 500)
    length = len(session.prompt_ids(text))
    assert 500 - len(session.prompt_ids(note(1))) <= length <= 500
    assert text.endswith(question.turns[0])
    notes = [line for line in text.splitlines() if line.startswith("Note")]
    assert len(set(notes)) == len(notes) > 3


ANSWERS = {
    ("pmset", "-g", "batt"): "Now drawing from 'Battery Power'\n -InternalBattery-0",
    ("pmset", "-g"): "System-wide power settings:\n lowpowermode         1\n",
    ("pmset", "-g", "therm"): "CPU_Speed_Limit \t= 80\n",
    ("sysctl", "-n", "kern.memorystatus_vm_pressure_level"): "2",
}


def test_what_slows_a_mac_down_is_in_the_header() -> None:
    assert mac_facts(lambda *words: ANSWERS[words]) == {
        "power": "Battery Power",
        "low_power_mode": "on",
        "thermal": "CPU speed limit 80 %",
        "memory_pressure": "warn",
    }
    assert mac_facts(lambda *words: "")["thermal"] == "no limit recorded"
