# SPDX-License-Identifier: Apache-2.0
"""The texts of a course: what is to be written, how long that takes, and reading it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import mlx.core as mx

from splashpy.errors import InputFileError, UsageError
from splashpy.training.continuation import continue_texts
from splashpy.training.examples import Corpus, Example, read_conversations
from splashpy.training.teacher import Teacher
from splashpy.training.writing import Author, Messages, Progress, WritingPlan
from splashpy.verification.sampling import SamplingParams

# One batch is timed for so many tokens after prompts of so many.
_TIMED_TOKENS = 4
_TIMED_PROMPT = 16


@dataclass(frozen=True, slots=True)
class Assignment:
    """A corpus the target shall write.

    Attributes:
        directory: of the corpus; what is there already is not written again.
        plan: how it is written.
        questions: conversations to answer; None invents them.
    """

    directory: Path
    plan: WritingPlan
    questions: Sequence[Messages] | None = None

    @property
    def conversations(self) -> int:
        """How many there will be."""
        if self.questions is None:
            return self.plan.conversations
        return len(self.questions)

    @property
    def left(self) -> int:
        """How many are still to be written."""
        if not self.directory.is_dir():
            return self.conversations
        corpus = Corpus(self.directory)
        sizes = corpus.sizes(self.conversations, self.plan.batch)
        return sum(sizes[corpus.next_shard :])

    def seconds(self, teacher: Teacher) -> float:
        """How long what is left takes at most, by a measurement of some tokens."""
        plan = self.plan
        rows = min(plan.batch, self.left)
        tokens = plan.answer_tokens
        if self.questions is None:
            tokens += plan.question_tokens
        batches = -(-self.left // plan.batch)
        return batches and batches * tokens * _token_seconds(teacher, rows)

    def write(
        self, teacher: Teacher, cancelled: Callable[[], bool], progress: Progress
    ) -> bool:
        """Write what is left.

        Args:
            teacher: who writes.
            cancelled: asked before every token.
            progress: called with every batch.

        Returns:
            False when it was cancelled; calling again goes on.

        Raises:
            TemplateError: the model has no usable chat template.
            UsageError: the corpus was begun in another way.
        """
        author = Author(teacher.target, teacher.speech, self.plan, cancelled)
        corpus = Corpus(self.directory)
        if self.questions is None:
            return author.invent(corpus, progress)
        return author.rewrite(corpus, self.questions, progress)


def read_questions(path: Path) -> list[Messages]:
    """Conversations of a JSONL file, at least one.

    Raises:
        InputFileError: it cannot be read, or holds none.
    """
    conversations = read_conversations(path)
    if not conversations:
        raise InputFileError(
            f"{path} holds no conversation",
            why='expected lines of {"prompt": "..."} or {"messages": [...]}',
        )
    return conversations


def read_texts(teacher: Teacher, *directories: Path) -> list[Example]:
    """The texts of one corpus or several.

    Raises:
        UsageError: there are none, or another model wrote them.
        InputFileError: a shard is damaged.
    """
    return [text for place in directories for text in _read_corpus(teacher, place)]


def _read_corpus(teacher: Teacher, directory: Path) -> list[Example]:
    if not (directory / "corpus.json").is_file():
        raise UsageError(
            f"{directory} holds no texts",
            why="splashpy train data writes corpus.json and shards into a directory",
        )
    examples = list(Corpus(directory).examples())
    vocabulary = teacher.target.facts.vocab_size
    largest = max((max(each.token_ids) for each in examples), default=0)
    if largest >= vocabulary:
        raise UsageError(
            f"the texts in {directory} were written by another model",
            why=f"they have token {largest}, this model's largest is {vocabulary - 1}",
        )
    return examples


def _token_seconds(teacher: Teacher, rows: int) -> float:
    """Seconds of one token of so many texts at once."""
    seconds = 0.0
    for _ in range(2):  # the first pass compiles
        began = perf_counter()
        continue_texts(
            teacher.target,
            [[0] * _TIMED_PROMPT] * rows,
            limit=_TIMED_TOKENS,
            stops=frozenset(),
            sampling=SamplingParams(),
            key=mx.random.key(0),
        )
        seconds = (perf_counter() - began) / _TIMED_TOKENS
    return seconds
