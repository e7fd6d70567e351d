# SPDX-License-Identifier: Apache-2.0
"""Branches: nothing is lost, and every message can be reached again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from splashpy.chat.entries import Message, Reply, UserMessage
from splashpy.chat.tree import Tree, mark_history, question_of


def user(text: str) -> UserMessage:
    return UserMessage(text, "14:02")


def reply(text: str) -> Reply:
    return Reply("demo", "14:02", "a", 0.0, state="complete", text=text)


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def test_switching_shows_what_was_said_last_below_a_sibling() -> None:
    tree = Tree()
    one, first, two, other = user("one"), reply("1"), user("two"), reply("one again")
    tree.add(one, None)
    tree.add(first, one)
    tree.add(two, first)
    tree.add(other, one)
    assert texts(tree.path()) == ["one", "one again"]

    assert tree.switch(other, -1)

    assert texts(tree.path()) == ["one", "1", "two"]
    assert (first.place, other.place) == ((1, 2), (2, 2))
    assert not tree.switch(first, -1)
    assert not tree.switch(two, 1)


def test_a_failed_answer_and_its_question_are_not_told_to_the_model() -> None:
    question, answer = user("one"), reply("")
    answer.state = "failed"
    mark_history([question, answer])
    assert not question.in_history
    assert not answer.in_history

    mark_history([question, reply("1")])
    assert question.in_history


def test_the_question_of_an_answer_is_its_parent() -> None:
    tree, question, answer = Tree(), user("one"), reply("1")
    tree.add(question, None)
    tree.add(answer, question)
    assert question_of(answer) is question


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=30))
def test_every_message_is_reached_by_switching_siblings(
    moves: list[tuple[int, bool]],
) -> None:
    tree = Tree()
    for number, (choice, asks) in enumerate(moves):
        parents: list[Message | None] = [None, *tree.messages]
        message = user(str(number)) if asks else reply(str(number))
        tree.add(message, parents[choice % len(parents)])
    for wanted in tree.messages:
        assert reach(tree, wanted)


def reach(tree: Tree, wanted: Message) -> bool:
    """Walk down to a message by nothing but sibling switches."""
    line: list[Message] = []
    at: Message | None = wanted
    while at is not None:
        line.insert(0, at)
        at = at.parent
    for message in line:
        here = [m for m in tree.siblings(message) if m in tree.path()]
        if not here:  # children of both kinds: only a message's own kind is beside it
            tree.leaf = message
            continue
        step = tree.siblings(message).index(message) - tree.siblings(message).index(
            here[0]
        )
        assert tree.switch(here[0], step) or step == 0
    return wanted in tree.path()
