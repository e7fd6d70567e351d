# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from splashpy.dialogue.turn import Turn, TurnDelta
from splashpy.host.model import Speech
from splashpy.protocol import (
    Accepted,
    Cancel,
    Count,
    Counted,
    Cycle,
    Done,
    EngineHello,
    Failure,
    Generate,
    Hello,
    Load,
    LoadProgress,
    Ping,
    Pong,
    Prefill,
    Ready,
    Sampling,
    Unload,
)


@pytest.mark.parametrize(
    "asked",
    [
        {"prompt": "word " * 400_000},
        {"messages": ({"role": "user", "content": "word " * 400_000},)},
        {
            "messages": (
                {"role": "user", "content": [{"type": "text", "text": "é" * 10**6}]},
            )
        },
    ],
)
def test_a_prompt_that_is_far_too_long_is_refused_without_being_rendered(
    conversation: Any, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    monkeypatch.setattr(Speech, "prompt", lambda self, command: pytest.fail("read"))

    (failure,) = conversation.ask(**asked)

    assert (failure.code, failure.prompt) == ("E-CONTEXT", 2_000_000)


def test_a_ping_is_answered_while_a_long_text_is_worked_on(
    conversation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    prompt = Speech.prompt

    def slow(speech: Speech, command: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return prompt(speech, command)

    monkeypatch.setattr(Speech, "prompt", slow)
    conversation.send(Count(id="a", messages=({"role": "user", "content": "hi"},)))
    assert begun.wait(60)
    conversation.send(Ping(n=3))

    assert conversation.until(Pong, Counted)[-1] == Pong(n=3)
    monkeypatch.setattr("splashpy.host.host._BUSY_SECONDS", -1.0)
    conversation.send(Ping(n=4))
    assert "one text has been worked on" in conversation.until(Pong)[-1].stuck
    go_on.set()
    conversation.until(Counted)


def test_hello_names_the_engine_and_the_device(conversation: Any) -> None:
    conversation.send(Hello())
    hello = conversation.until(EngineHello)[-1]
    assert hello.proto == 1
    assert hello.mlx
    assert hello.device.name
    assert hello.device.memory_bytes > 2**30
    assert hello.device.blas.startswith(("reference", "openblas", "accelerate"))


def test_loading_reports_progress_and_ends_ready(
    conversation: Any, model: Path
) -> None:
    events = conversation.load(model)
    assert any(isinstance(event, LoadProgress) for event in events)
    ready = events[-1]
    assert isinstance(ready, Ready)
    assert ready.model == "tiny"
    assert ready.context_max == 512
    assert ready.memory.weights > 0
    assert ready.memory.kv_per_token == 2 * 4 * 2 * 16 * 4


def test_an_answer_is_prefill_then_cycles_then_done(conversation: Any) -> None:
    events = conversation.ask(return_token_ids=True)
    assert isinstance(events[0], Accepted)
    kinds = [type(event) for event in events[1:]]
    assert kinds[0] is Prefill
    assert kinds[-1] is Done
    done = events[-1]
    cycles = [event for event in events if isinstance(event, Cycle)]
    assert cycles[0].i == 0
    assert cycles[0].drafted == 0
    assert done.reason in {"length", "stop"}
    assert done.usage.completion == sum(len(c.token_ids) for c in cycles)
    assert done.usage.completion == sum(c.committed for c in cycles)
    assert done.timing.ttft_ms >= done.timing.prefill_ms > 0
    assert done.timing.first_emission_tokens == 1


def test_spec_counts_agree_with_the_cycles(conversation: Any) -> None:
    done = conversation.ask(
        prompt="abcabcabcabc", sampling=Sampling(logit_bias=((66, 100.0),))
    )[-1]
    spec = done.spec
    assert sum(spec.hist) == spec.cycles
    assert sum((n + 1) * count for n, count in enumerate(spec.hist)) == (
        done.usage.completion - 1
    )
    assert spec.tau == pytest.approx((done.usage.completion - 1) / spec.cycles)
    assert sum(spec.accepted_per_position) == spec.accepted
    assert sum(spec.drafted_per_position) == spec.drafted
    decided = spec.plain_cycles + spec.drafter_cycles + spec.lookup_cycles
    assert decided == spec.cycles
    assert spec.saved >= 0
    assert spec.regret >= 0


def test_the_next_turn_reuses_the_state_of_the_last(
    conversation: Any, read_text: Callable
) -> None:
    messages = [{"role": "user", "content": "tell me something long enough"}]
    first = conversation.ask(messages=tuple(messages))
    messages += [
        {"role": "assistant", "content": read_text(first)},
        {"role": "user", "content": "more"},
    ]
    second = conversation.ask(messages=tuple(messages))[-1]
    assert second.usage.cached >= first[-1].usage.prompt - 1


def test_a_stop_string_ends_the_answer_just_before_it(
    conversation: Any, read_text: Callable
) -> None:
    whole = read_text(conversation.ask(max_tokens=60))
    stop = whole[7:9]
    events = conversation.ask(max_tokens=60, sampling=Sampling(stop=(stop,)))
    assert read_text(events) == whole[: whole.index(stop)]
    done = events[-1]
    assert done.reason == "stop"
    assert done.usage.completion < 60
    # The engine is free again and its state is a true prefix.
    assert read_text(conversation.ask(max_tokens=60)) == whole


def test_the_same_seed_gives_the_same_text(
    conversation: Any, read_text: Callable
) -> None:
    sampling = Sampling(temperature=1.0, seed=0)
    first = read_text(conversation.ask(sampling=sampling))
    conversation.ask(prompt="something else")
    assert read_text(conversation.ask(sampling=sampling)) == first


def test_without_a_seed_texts_differ(conversation: Any, read_text: Callable) -> None:
    texts = {
        read_text(conversation.ask(sampling=Sampling(temperature=1.5)))
        for _ in range(3)
    }
    assert len(texts) > 1


def test_a_cancelled_answer_is_done_and_keeps_its_text(
    endless: Any, read_text: Callable
) -> None:
    conversation = endless
    going_on = Sampling(ignore_eos=True)
    conversation.send(Generate(id="x", prompt="hello", sampling=going_on))
    begun = conversation.until(Cycle)
    conversation.send(Cancel(id="x"))
    rest = conversation.until(Done)
    assert rest[-1].reason == "cancelled"
    assert read_text(begun + rest)


def test_counting_tokens_needs_no_answer(conversation: Any) -> None:
    conversation.send(Count(id="n", prompt="four"))
    assert conversation.until(Counted)[-1].tokens == 4


@pytest.mark.parametrize(
    ("fields", "code", "needle"),
    [
        ({"sampling": Sampling(temperature=-1.0)}, "E-USAGE", "temperature is -1.0"),
        ({"sampling": Sampling(top_p=2.0)}, "E-USAGE", "top_p is 2.0"),
        ({"max_tokens": 0}, "E-USAGE", "max_tokens is 0"),
        ({"prompt": "x", "messages": ({"role": "user"},)}, "E-USAGE", "either"),
        ({"prompt": ""}, "E-USAGE", "empty"),
        ({"messages": ({"role": "king", "content": ""},)}, "E-USAGE", "king"),
        ({"prompt": "x" * 600}, "E-CONTEXT", "600"),
        ({"sampling": Sampling(stop=("",))}, "E-USAGE", "stop string is empty"),
        ({"sampling": Sampling(presence_penalty=math.nan)}, "E-USAGE", "finite"),
        ({"sampling": Sampling(logit_bias=((1, math.inf),))}, "E-USAGE", "finite"),
        ({"effort": "banana"}, "E-USAGE", "banana"),
        ({"messages": (), "prompt_ids": (5, -1, 99)}, "E-USAGE", "token id -1"),
        (
            {"sampling": Sampling(logit_bias=((99999, 1.0),))},
            "E-USAGE",
            "token id 99999",
        ),
    ],
)
def test_a_bad_request_fails_alone_with_one_clear_error(
    fields: dict[str, Any], code: str, needle: str, conversation: Any
) -> None:
    failure = conversation.ask(**fields)[-1]
    assert isinstance(failure, Failure)
    assert failure.code == code
    assert needle in failure.message
    assert not failure.fatal
    assert isinstance(conversation.ask()[-1], Done)


def test_a_count_that_fails_is_answered_under_its_own_id(conversation: Any) -> None:
    conversation.send(Count(id="n", messages=({"role": "king", "content": ""},)))
    failure = conversation.until(Failure, Counted)[-1]
    assert (failure.id, failure.code) == ("n", "E-USAGE")


def test_loads_that_overtake_each_other_are_answered_one_by_one(
    conversation: Any, model: Path, tmp_path: Path
) -> None:
    unsound = tmp_path / "unsound"
    shutil.copytree(model, unsound)
    config = json.loads((unsound / "config.json").read_text())
    (unsound / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    conversation.send(Load(model=str(unsound), name="unsound"))
    conversation.send(Load(model=str(model), name="sound"))
    answers = [conversation.until(Ready, Failure)[-1] for _ in range(2)]
    assert [type(answer) for answer in answers] == [Failure, Ready]
    assert answers[1].model == "sound"
    assert isinstance(conversation.ask()[-1], Done)

    conversation.send(Load(model=str(model), name="sound"))
    conversation.send(Load(model=str(unsound), name="unsound"))
    answers = [conversation.until(Ready, Failure)[-1] for _ in range(2)]
    assert [type(answer) for answer in answers] == [Ready, Failure]
    assert conversation.ask()[-1].message == "no model is loaded"


def test_a_seed_gives_the_same_text_with_drafts_and_traffic_between(
    conversation: Any, model: Path, read_text: Callable
) -> None:
    conversation.load(model, lookup=True)
    fields = {
        "prompt": "abcabcabcabcabc",
        "sampling": Sampling(temperature=0.8, seed=0, logit_bias=((66, 4.0),)),
        "max_tokens": 40,
    }
    first = conversation.ask(**fields)
    conversation.ask(prompt="other traffic", sampling=Sampling(temperature=1.0))
    second = conversation.ask(**fields)
    assert first[-1].spec.drafted > 0
    assert read_text(first) == read_text(second)
    plain = conversation.ask(**fields, draft=False)
    assert read_text(plain) == read_text(first)


def test_pings_are_answered_while_the_target_computes(endless: Any) -> None:
    conversation = endless
    going_on = Sampling(ignore_eos=True)
    conversation.send(Generate(id="x", prompt="hello", sampling=going_on))
    conversation.send(Ping(n=7))
    seen = conversation.until(Pong)
    assert seen[-1].n == 7
    assert not any(isinstance(event, Done) for event in seen)


def test_an_answer_whose_text_breaks_ends_once_and_alone(
    endless: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Turn.feed

    def break_down(self: Turn, *cycle: Any) -> TurnDelta:
        monkeypatch.setattr(Turn, "feed", whole)
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(Turn, "feed", break_down)
    going_on = Sampling(ignore_eos=True)
    seen = endless.ask(id="x", prompt="hello", sampling=going_on, max_tokens=None)
    after = endless.ask(id="y", prompt="hello", max_tokens=3)

    assert (seen[-1].id, seen[-1].code) == ("x", "E-INTERNAL")
    assert isinstance(after[-1], Done)
    assert not [event for event in after if event.id == "x"]


def test_unloading_frees_the_model(conversation: Any) -> None:
    conversation.send(Unload())
    failure = conversation.ask()[-1]
    assert failure.message == "no model is loaded"


def test_a_request_id_in_use_is_refused(endless: Any) -> None:
    conversation = endless
    going_on = Sampling(ignore_eos=True)
    conversation.send(Generate(id="x", prompt="hello", sampling=going_on))
    conversation.send(Generate(id="x", prompt="hello", max_tokens=3))
    failure = conversation.until(Failure)[-1]
    assert "already in use" in failure.message


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda d: (d / "model.safetensors").unlink(), "E-"),
        (lambda d: (d / "tokenizer.json").unlink(), "E-MODEL-KIND"),
        (lambda d: (d / "config.json").write_text("{"), "E-"),
        (
            lambda d: (d / "model.safetensors").write_bytes(
                (d / "model.safetensors").read_bytes()[:-100]
            ),
            "E-HASH",
        ),
        (
            lambda d: (d / "config.json").write_text(
                json.dumps(
                    {
                        **json.loads((d / "config.json").read_text()),
                        "model_file": "evil.py",
                    }
                )
            ),
            "E-CODE",
        ),
    ],
)
def test_a_damaged_model_is_refused_and_the_host_lives_on(
    spoil: Callable[[Path], object],
    code: str,
    conversation: Any,
    model: Path,
    tmp_path: Path,
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(model, damaged)
    spoil(damaged)
    failure = conversation.load(damaged)[-1]
    assert isinstance(failure, Failure)
    assert failure.code.startswith(code)
    assert "Traceback" not in failure.message
    assert isinstance(conversation.load(model)[-1], Ready)


def test_a_context_beyond_the_model_is_refused_with_its_limit(
    conversation: Any, model: Path
) -> None:
    failure = conversation.load(model, max_context=100_000)[-1]
    assert failure.code == "E-USAGE"
    assert "512" in failure.message


def test_a_smaller_context_is_kept(conversation: Any, model: Path) -> None:
    assert conversation.load(model, max_context=64)[-1].context_max == 64
    going_on = Sampling(ignore_eos=True)
    done = conversation.ask(prompt="hello", max_tokens=None, sampling=going_on)[-1]
    assert done.reason == "context_full"
    assert done.usage.prompt + done.usage.completion == 64
