# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from splashpy.drafting.plain import PlainDrafter
from splashpy.engine.generation import generate
from splashpy.engine.request import GenerationRequest, TokensCommitted
from splashpy.errors import RequestCancelled
from splashpy.host.model import Speech
from splashpy.models.target import MlxLmTarget
from splashpy.training.continuation import continue_texts
from splashpy.training.examples import Corpus, Example
from splashpy.training.writing import Author, WritingPlan
from splashpy.verification.sampling import SamplingParams

KEY = mx.random.key(0)


def decoded(
    target: MlxLmTarget, prompt: tuple[int, ...], limit: int, stops: frozenset[int]
) -> list[int]:
    """What the engine decodes, one text at a time."""
    request = GenerationRequest(
        id="one",
        token_ids=prompt,
        sampling=SamplingParams(),
        seed=0,
        max_new_tokens=limit,
        stop_token_ids=stops,
    )
    events = generate(request, target, PlainDrafter(), None, cancelled=lambda: False)
    return [
        token
        for event in events
        if isinstance(event, TokensCommitted)
        for token in event.token_ids
    ]


def test_texts_continued_together_are_what_each_becomes_alone(
    target: MlxLmTarget,
) -> None:
    @settings(max_examples=15)
    @given(
        st.lists(
            st.lists(st.integers(0, 255), min_size=1, max_size=9),
            min_size=1,
            max_size=4,
        ),
        st.frozensets(st.integers(0, 259), max_size=40),
    )
    def check(prompts: list[list[int]], stops: frozenset[int]) -> None:
        texts = continue_texts(
            target, prompts, limit=8, stops=stops, sampling=SamplingParams(), key=KEY
        )
        assert texts == [decoded(target, tuple(p), 8, stops) for p in prompts]

    check()


@pytest.mark.parametrize("family", list(tiny.FAMILIES))
def test_every_kind_of_target_continues_texts_together_as_alone(family: str) -> None:
    """Windows, recurrent states, logit caps; shorter prompts are padded on the left."""
    target = tiny.target(family)
    prompts = [[7, 3, 9, 1, 200, 14, 8, 5, 77, 31, 6], [4], [90, 17, 5], [12] * 20]
    alone = [decoded(target, tuple(p), 12, frozenset()) for p in prompts]
    # Two texts end early, and the others go on without them.
    stops = frozenset([alone[1][2], alone[2][5]])
    ended = [decoded(target, tuple(p), 12, stops) for p in prompts]
    assert min(map(len, ended)) < max(map(len, ended))
    for expected, ends in ((alone, frozenset()), (ended, stops)):
        texts = continue_texts(
            target, prompts, limit=12, stops=ends, sampling=SamplingParams(), key=KEY
        )
        assert texts == expected


def test_drawn_texts_differ_between_rows_and_repeat_with_the_key(
    target: MlxLmTarget,
) -> None:
    def draw(key: mx.array) -> list[list[int]]:
        return continue_texts(
            target,
            [[1, 2]] * 3,
            limit=6,
            stops=frozenset(),
            sampling=SamplingParams(temperature=1.0),
            key=key,
        )

    first = draw(KEY)
    assert len({tuple(text) for text in first}) == 3
    assert draw(KEY) == first
    assert draw(mx.random.key(1)) != first


def after(calls: int) -> Iterator[bool]:
    yield from [False] * calls
    while True:
        yield True


PLAN = WritingPlan(
    conversations=5, batch=2, question_tokens=60, answer_tokens=6, seed=3
)


def test_a_target_writes_conversations_from_nothing_and_goes_on_where_it_stopped(
    target: MlxLmTarget, speech: Speech, tmp_path: Path
) -> None:
    # Many tokens end a turn, or a random target would finish no question.
    tokenizer = copy.copy(speech.tokenizer)
    tokenizer.eos_token_ids = stops = frozenset(range(200, 260))
    ending = dataclasses.replace(speech, tokenizer=tokenizer)
    whole = Corpus(tmp_path / "whole")
    shown: list[tuple[int, int]] = []
    assert Author(target, ending, PLAN).invent(whole, lambda *at: shown.append(at))
    examples = list(whole.examples())
    assert shown == [(0, 5), (2, 5), (4, 5), (5, 5)]
    assert whole.next_shard == 3
    assert examples
    for example in examples:
        assert example.token_ids[example.start :] == tuple(
            decoded(target, example.prompt_ids, 6, stops)
        )

    parts = Corpus(tmp_path / "parts")
    sittings, calls, finished = 0, 0, False
    while not finished:
        calls += 7
        flags = after(calls)
        author = Author(target, ending, PLAN, lambda flags=flags: next(flags))
        finished = author.invent(parts)
        sittings += 1
    assert sittings > 1
    assert list(parts.examples()) == examples

    more = dataclasses.replace(PLAN, conversations=8)
    assert Author(target, ending, more).invent(parts)
    assert parts.next_shard == 5  # 2, 2 and 1 of the first calls, 2 and 1 more
    assert list(parts.examples())[: len(examples)] == examples


def test_given_conversations_are_answered_turn_by_turn(
    target: MlxLmTarget, speech: Speech, tmp_path: Path
) -> None:
    asked = [
        [{"role": "user", "content": "Hi"}, {"role": "user", "content": "And?"}],
        [{"role": "user", "content": "One"}],
    ]
    corpus = Corpus(tmp_path)
    assert Author(target, speech, PLAN).rewrite(corpus, asked)
    first, other, second = corpus.examples()

    assert first.conversation == second.conversation != other.conversation
    text = speech.tokenizer.decode(second.prompt_ids, skip_special_tokens=False)
    answer = speech.tokenizer.decode(first.token_ids[first.start :])
    assert text.startswith(
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" + answer
    )
    assert text.endswith("<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n")


def test_instructions_all_begin_with_make_no_conversation_of_them(
    target: MlxLmTarget, speech: Speech, tmp_path: Path
) -> None:
    """Or all would be held out, or none."""
    briefs = [{"role": "system", "content": text} for text in ("Be kind.", "Be brief.")]
    hello, bye = ({"role": "user", "content": text} for text in ("Hello", "Bye"))
    asked = [[briefs[0], hello], [briefs[0], bye], [briefs[1], hello], [hello]]
    corpus = Corpus(tmp_path)
    assert Author(target, speech, PLAN).rewrite(corpus, asked)

    first, second, third, fourth = (each.conversation for each in corpus.examples())
    assert first == third == fourth != second


def test_a_cancelled_batch_is_not_written(target: MlxLmTarget) -> None:
    with pytest.raises(RequestCancelled):
        continue_texts(
            target,
            [[1]],
            limit=3,
            stops=frozenset(),
            sampling=SamplingParams(),
            key=KEY,
            cancelled=lambda: True,
        )
    assert Example((1, 2, 3), 1, "").prompt_ids == (1,)
