# SPDX-License-Identifier: Apache-2.0
"""Several people ask at once: an endpoint from outside, the engine of this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
from bench.fake_endpoint import deltas, serving
from bench.legs import MACHINE, SETTINGS

from splashpy.bench.crowd import Crowd, CrowdArm
from splashpy.bench.document import summarize
from splashpy.bench.endpoint import Endpoint
from splashpy.bench.engine_talker import EngineTalker
from splashpy.bench.leg import Leg
from splashpy.bench.report import concurrency_lines
from splashpy.bench.suites import Question
from splashpy.bench.talker import Heard, Messages, Wish
from splashpy.client.in_process import InProcessClient
from splashpy.errors import (
    AuthorisationError,
    NoServerError,
    PackageError,
    ServerError,
    UsageError,
)
from splashpy.protocol import Load, LoadOptions

WISH = Wish(max_tokens=8)
MESSAGES = [{"role": "user", "content": "hello"}]
QUESTIONS = [Question("quick", str(n), "chat", (f"question {n}",)) for n in range(4)]


def never() -> bool:
    return False


def test_an_answer_is_timed_and_its_tokens_are_the_endpoints_own() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 5}
    with serving(lambda _: deltas("Hel", "lo", usage=usage), key="secret") as server:
        endpoint = Endpoint.find(server.url, None, "secret")
        heard = endpoint.ask(MESSAGES, WISH, never)
    assert endpoint.model == "first"
    assert heard is not None
    assert heard.text == "Hello"
    assert (heard.prompt_tokens, heard.completion_tokens) == (7, 5)
    assert heard.began < heard.first <= heard.last
    (body,) = server.asked
    assert (body["model"], body["max_tokens"], body["stream"]) == ("first", 8, True)
    assert body["messages"] == MESSAGES


def check_acceptance(leg: Leg) -> None:
    """The identities AIPerf refuses a record for."""
    record = leg.acceptance()
    assert record is not None
    histogram = {int(n): count for n, count in record["acceptance_histogram"].items()}
    assert min(histogram.values()) > 0
    assert sum(histogram.values()) == record["num_spec_steps"] <= leg.cycles
    weighted = sum(n * count for n, count in histogram.items())
    assert weighted == record["num_accepted_draft_tokens"] == leg.accepted
    assert record["num_draft_tokens"] == sum(leg.drafted_per_position)
    assert max(histogram) <= record["num_spec_tokens"]


TOLD = {
    "splashpy": {
        "cycles": 7,
        "accept_by_position": [4, 2, 2],
        "draft_by_position": [6, 5, 3],
        "decisions": {"plain": 1, "drafter": 5, "lookup": 1},
    },
    "timings": {"draft_n": 14, "draft_n_accepted": 8},
}


def told(events: list[dict[str, Any]]) -> list[Leg]:
    """Legs of one question that an endpoint answers so."""
    with serving(lambda _: [*deltas("a", "b"), *events]) as server:
        crowd = Crowd(
            talker=Endpoint.find(server.url, "m"),
            arms=(CrowdArm("url", 1),),
            trials=1,
            wish=WISH,
        )
        (legs,) = crowd.run(QUESTIONS[:1])
    return legs


def test_an_endpoint_of_splashpy_tells_what_its_passes_did() -> None:
    (leg,) = told([{"choices": [], **TOLD}])
    assert (leg.cycles, leg.drafted, leg.accepted) == (7, 14, 8)
    assert leg.kept == {0: 2, 1: 2, 3: 2}
    check_acceptance(leg)


@pytest.mark.parametrize(
    "part",
    [
        {"accept_by_position": [4, 2, 9]},
        {"accept_by_position": [2, 4, 2]},
        {"decisions": {"drafter": 1}},
        {"accept_by_position": "many"},
    ],
)
def test_counts_that_do_not_add_up_are_not_told_again(part: dict[str, Any]) -> None:
    (leg,) = told([{"choices": [], **TOLD, "splashpy": {**TOLD["splashpy"], **part}}])
    assert (leg.cycles, leg.acceptance()) == (0, None)
    (other,) = told([])
    assert other.acceptance() is None


def test_without_counts_every_event_with_text_is_a_token() -> None:
    with serving(lambda _: deltas("a", "b", "c")) as server:
        heard = Endpoint.find(server.url, "m").ask(MESSAGES, WISH, never)
    assert heard is not None
    assert heard.completion_tokens == 3


def test_an_endpoint_that_cannot_be_asked_says_why() -> None:
    with pytest.raises(UsageError, match="not an address"):
        Endpoint.find("127.0.0.1:8000", None)
    with serving(lambda _: [{"error": {"message": "no memory"}}], key="k") as server:
        with pytest.raises(AuthorisationError) as denied:
            Endpoint.find(server.url, "m").ask(MESSAGES, WISH, never)
        assert "wrong key" in denied.value.why
        with pytest.raises(ServerError, match="middle of an answer") as broken:
            Endpoint.find(server.url, "m", "k").ask(MESSAGES, WISH, never)
        assert "no memory" in broken.value.why
        url = server.url
    with pytest.raises(NoServerError, match="does not answer"):
        Endpoint.find(url, None)


def test_a_wish_to_stop_ends_an_answer() -> None:
    with serving(lambda _: deltas("a", "b")) as server:
        assert Endpoint.find(server.url, "m").ask(MESSAGES, WISH, lambda: True) is None


def test_so_many_people_really_ask_at_once() -> None:
    # Nobody is answered before all four have asked.
    with serving(lambda _: deltas("a", "b"), together=4) as server:
        crowd = Crowd(
            talker=_Unwarmed(Endpoint.find(server.url, "m")),
            arms=(CrowdArm("url", 4),),
            trials=1,
            wish=WISH,
        )
        (legs,) = crowd.run(QUESTIONS)
        assert server.most == 4
    assert {leg.arm for leg in legs} == {"url x4"}
    assert sorted(leg.prompt for leg in legs) == ["0", "1", "2", "3"]
    found = summarize(legs, settings=SETTINGS, environment=MACHINE, complete=True)
    (row,) = found["concurrency"]
    assert (row["arm"], row["people"], row["requests"]) == ("url x4", 4, 4)
    assert row["aggregate_tok_s"] > 0
    (line,) = concurrency_lines(found)
    assert line.startswith("url x4: ")


class _Unwarmed:
    """Leaves out the question that warms up."""

    def __init__(self, endpoint: Endpoint):
        self._endpoint, self._first = endpoint, True

    def ask(
        self, messages: Messages, wish: Wish, stopping: Callable[[], bool]
    ) -> Heard | None:
        if self._first:
            self._first = False
            return None
        return self._endpoint.ask(messages, wish, stopping)


def test_later_turns_follow_the_answers_and_trials_turn_the_order() -> None:
    talk = [Question("mt-bench", "0", "mt-bench", ("one", "two"))]
    with serving(lambda _: deltas("said")) as server:
        crowd = Crowd(
            talker=Endpoint.find(server.url, "m"),
            arms=(CrowdArm("url", 1), CrowdArm("url", 2)),
            trials=2,
            wish=WISH,
        )
        first, second = crowd.run(talk)
        assert [leg.arm for leg in first] == ["url", "url", "url x2", "url x2"]
        assert [leg.arm for leg in second] == ["url x2", "url x2", "url", "url"]
        assert [leg.turn for leg in first] == [0, 1, 0, 1]
        again = list(crowd.run(talk, [leg.place for leg in first]))
    assert [leg.trial for leg in again[0]] == [1] * 4
    words = [message["content"] for message in server.asked[2]["messages"]]
    assert words == ["one", "said", "two"]


def test_a_failure_of_one_ends_the_round_for_all() -> None:
    with serving(lambda _: [{"error": "full"}]) as server:
        crowd = Crowd(
            talker=_Unwarmed(Endpoint.find(server.url, "m")),
            arms=(CrowdArm("url", 3),),
            trials=1,
            wish=WISH,
        )
        with pytest.raises(ServerError):
            list(crowd.run(QUESTIONS))
    assert not [t for t in threading.enumerate() if t.name == "splashpy-bench-person"]


def test_the_engine_of_this_machine_answers_several(tmp_path: Path) -> None:
    model = tiny.write_model(tmp_path / "model")
    load = Load(model=str(model), options=LoadOptions(lookup=True, prefix_cache=False))
    with InProcessClient() as client, EngineTalker(client, load) as talker:
        arms = (CrowdArm("draft", 1), CrowdArm("draft", 2), CrowdArm("plain", 2))
        crowd = Crowd(talker=talker, arms=arms, trials=1, wish=WISH)
        (legs,) = crowd.run(QUESTIONS)
    assert [leg.arm for leg in legs] == [
        *["draft"] * 4,
        *["draft x2"] * 4,
        *["plain x2"] * 4,
    ]
    assert all(0 < leg.completion_tokens <= 8 for leg in legs)
    assert not any(leg.drafted for leg in legs if leg.arm == "plain x2")
    assert all(leg.cycles for leg in legs)
    drafting = [leg for leg in legs if leg.drafted]
    assert drafting
    assert {leg.people for leg in drafting} == {1, 2}
    for leg in drafting:
        check_acceptance(leg)
    assert Leg.from_fields(legs[4].fields()) == legs[4]


def test_a_model_that_cannot_be_loaded_is_an_error(tmp_path: Path) -> None:
    with InProcessClient() as client, pytest.raises(PackageError, match="not a model"):
        EngineTalker(client, Load(model=str(tmp_path)))


def test_nothing_is_said_together_where_people_ask_alone() -> None:
    leg = Leg(
        suite="quick",
        prompt="0",
        trial=0,
        arm="draft",
        prompt_tokens=1,
        completion_tokens=2,
        prefill_seconds=1.0,
        decode_seconds=1.0,
    )
    found = summarize([leg], settings=SETTINGS, environment=MACHINE, complete=True)
    assert found["concurrency"] == []
    assert concurrency_lines(found) == []
