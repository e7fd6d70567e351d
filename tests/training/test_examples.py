# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splashpy.errors import InputFileError, UsageError
from splashpy.training.examples import Corpus, Example, digest, read_conversations


def example(number: int, *, answer: int = 0) -> Example:
    return Example((number, 1, 2, answer), 3, digest(str(number)))


def test_a_corpus_gives_back_its_examples_and_repeated_prompts_once(
    tmp_path: Path,
) -> None:
    corpus = Corpus(tmp_path / "texts")
    corpus.write_shard(0, [example(1), example(2)])
    corpus.write_shard(1, [])
    corpus.write_shard(2, [example(2, answer=9), example(3)])

    assert list(corpus.examples()) == [example(1), example(2), example(3)]
    assert corpus.next_shard == 3
    assert {each.name for each in corpus.directory.iterdir()} == {
        f"examples-{number:05d}.jsonl" for number in range(3)
    }


def test_a_corpus_goes_on_with_the_same_settings_only(tmp_path: Path) -> None:
    Corpus(tmp_path).claim({"seed": 1, "batch": 4})
    Corpus(tmp_path).claim({"seed": 1, "batch": 4})
    with pytest.raises(UsageError, match="other settings") as raised:
        Corpus(tmp_path).claim({"seed": 2, "batch": 4})
    assert raised.value.why == "seed was 1, now 2"


@given(st.lists(st.integers(0, 10_000), unique=True), st.floats(0, 1))
def test_more_texts_move_no_conversation_between_the_parts(
    numbers: list[int], share: float
) -> None:
    first = {n: example(n).held_out(share) for n in numbers}
    assert all(
        example(n, answer=7).held_out(share) == kept for n, kept in first.items()
    )


def test_about_the_share_asked_for_is_held_out() -> None:
    held = [number for number in range(2000) if example(number).held_out(0.1)]
    assert 150 < len(held) < 250  # 200 expected, standard deviation 13


def test_a_damaged_shard_is_named_with_its_line(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    corpus.write_shard(0, [example(1)])
    with (tmp_path / "examples-00000.jsonl").open("a") as file:
        file.write('{"token_ids": [1')
    with pytest.raises(InputFileError, match="line 2 is damaged"):
        list(corpus.examples())


def test_conversations_are_prompts_or_messages_without_answers(tmp_path: Path) -> None:
    path = tmp_path / "asked.jsonl"
    path.write_text(
        '{"prompt": "Hello"}\n\n'
        '{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content":'
        ' "u"}, {"role": "assistant", "content": "a"}]}\n'
    )
    assert read_conversations(path) == [
        [{"role": "user", "content": "Hello"}],
        [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
    ]


def test_only_a_newline_ends_a_line_of_questions(tmp_path: Path) -> None:
    text = "one\u2028two\x85three"
    line = json.dumps({"prompt": text}, ensure_ascii=False)
    path = tmp_path / "asked.jsonl"
    path.write_text(f"\ufeff{line}\r\n{line}\n", encoding="utf-8")

    assert read_conversations(path) == [[{"role": "user", "content": text}]] * 2


@pytest.mark.parametrize(
    "changes",
    [
        *({"token_ids": []}, {"token_ids": [1, -1]}, {"token_ids": [1, 2**40]}),
        *({"token_ids": [1, "2"]}, {"token_ids": 3}, {"start": 0}, {"start": 5}),
        *({"start": None}, {"conversation": ""}, {"conversation": 7}),
    ],
)
def test_a_line_that_is_no_example_is_damaged(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    line = {"token_ids": [1, 2, 3], "start": 1, "conversation": digest("a")}
    corpus = Corpus(tmp_path)
    (tmp_path / "examples-00000.jsonl").write_text(json.dumps({**line, **changes}))

    with pytest.raises(InputFileError, match="line 1 is damaged"):
        list(corpus.examples())


@settings(max_examples=40)
@given(
    calls=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    batch=st.integers(1, 9),
    done=st.data(),
)
def test_a_corpus_grows_to_what_the_last_call_asked_for(
    tmp_path_factory: pytest.TempPathFactory,
    calls: list[int],
    batch: int,
    done: st.DataObject,
) -> None:
    """Every call may be interrupted after any shard; a shard is never written anew."""
    corpus = Corpus(tmp_path_factory.mktemp("texts"))
    corpus.claim({"batch": batch})
    written: list[int] = []
    for total in sorted(calls):
        sizes = corpus.extend(total, batch)
        assert sizes[: len(written)] == written
        assert sum(sizes) == total
        assert max(sizes) <= batch
        last = done.draw(st.integers(len(written), len(sizes)))
        for shard in range(len(written), last):
            corpus.write_shard(shard, [])
        written = sizes[:last]
        corpus.claim({"batch": batch})


@pytest.mark.parametrize(
    "line",
    [
        *("[", "[" * 100_000, "[]", '{"prompt": 3}'),
        '{"messages": [{"role": "assistant"}]}',
    ],
    ids=range(5),
)
def test_a_line_that_is_no_conversation_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "asked.jsonl"
    path.write_text('{"prompt": "Hello"}\n' + line + "\n")
    with pytest.raises(InputFileError, match="line 2"):
        read_conversations(path)
