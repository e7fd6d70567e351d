# SPDX-License-Identifier: Apache-2.0
"""The target writes the texts its drafter learns from.

A drafter has to guess this target's words, so only the target can write them. With no
data at all it also writes the questions: given the beginning of a user turn and
nothing else, a chat model continues with something a user might say. Questions are
drawn at a high temperature, for variety, answers at a low one, as chats decode them.
A drafter saves time from the first token on, so many short answers teach more than a
few long ones, whose tails repeat themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from splashpy.errors import RequestCancelled, TemplateError
from splashpy.host.model import Speech
from splashpy.models.target import MlxLmTarget
from splashpy.protocol import Generate
from splashpy.training.continuation import continue_texts
from splashpy.training.examples import Corpus, Example, digest
from splashpy.training.random_keys import Stream, key_of
from splashpy.verification.sampling import SamplingParams

Messages = list[dict[str, Any]]
Progress = Callable[[int, int], None]
"""Called with (conversations done, conversations in all)."""

_MARKER = "question goes here"


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingPlan:
    """What is written.

    Attributes:
        conversations: how many the target invents.
        batch: conversations written at once; one batch is one shard.
        question_tokens: a question that is not finished by then is dropped.
        question_temperature: of questions.
        answer_tokens: answers are cut there.
        answer_temperature: of answers; 0 is greedy.
        seed: of all draws.
    """

    conversations: int = 1000
    batch: int = 32
    question_tokens: int = 80
    question_temperature: float = 1.0
    answer_tokens: int = 160
    answer_temperature: float = 0.0
    seed: int = 0


class Author:
    """A target that writes a corpus.

    Args:
        target: who writes.
        speech: its text side.
        plan: what to write.
        cancelled: asked before every token.
    """

    def __init__(
        self,
        target: MlxLmTarget,
        speech: Speech,
        plan: WritingPlan,
        cancelled: Callable[[], bool] = lambda: False,
    ):
        self._target = target
        self._speech = speech
        self._plan = plan
        self._cancelled = cancelled
        self._stops = speech.tokenizer.eos_token_ids

    def invent(self, corpus: Corpus, progress: Progress = lambda *_: None) -> bool:
        """Write conversations from nothing.

        Returns:
            False when it was cancelled; calling again goes on.

        Raises:
            TemplateError: the model has no usable chat template.
            UsageError: the corpus was begun with another plan; only the number of
                conversations may change.
        """
        plan = self._plan
        corpus.claim(self._settings("nothing"))
        sizes = corpus.extend(plan.conversations, plan.batch)
        opening = self._opening()
        return self._write(
            corpus,
            sizes,
            lambda shard: self._questions(opening, sizes[shard], shard),
            progress,
        )

    def rewrite(
        self,
        corpus: Corpus,
        conversations: Sequence[Messages],
        progress: Progress = lambda *_: None,
    ) -> bool:
        """Answer every user message of given conversations, in order.

        Returns:
            False when it was cancelled; calling again goes on.

        Raises:
            TemplateError: a conversation cannot be rendered.
            UsageError: the corpus was begun with other settings or conversations.
        """
        size = self._plan.batch
        corpus.claim(self._settings(digest(repr(conversations))))
        batches = [
            list(conversations[at : at + size])
            for at in range(0, len(conversations), size)
        ]
        return self._write(
            corpus, [len(each) for each in batches], batches.__getitem__, progress
        )

    def _settings(self, origin: str) -> dict[str, Any]:
        """What decides the words; more conversations may be asked for later."""
        settings = asdict(self._plan)
        del settings["conversations"]
        return {"from": origin, **settings}

    def _write(
        self,
        corpus: Corpus,
        sizes: Sequence[int],
        conversations: Callable[[int], Sequence[Messages]],
        progress: Progress,
    ) -> bool:
        total = sum(sizes)
        for shard in range(corpus.next_shard, len(sizes)):
            progress(sum(sizes[:shard]), total)
            try:
                examples = list(self._answer(conversations(shard), shard))
            except RequestCancelled:
                return False
            corpus.write_shard(shard, examples)
        progress(total, total)
        return True

    def _questions(self, opening: list[int], count: int, shard: int) -> list[Messages]:
        written = continue_texts(
            self._target,
            [opening] * count,
            limit=self._plan.question_tokens,
            stops=self._stops,
            sampling=SamplingParams(temperature=self._plan.question_temperature),
            key=key_of(self._plan.seed, Stream.QUESTIONS, shard),
            cancelled=self._cancelled,
        )
        # An unfinished question is dropped: no user stops in the middle of a word.
        finished = [ids[:-1] for ids in written if ids[-1] in self._stops]
        texts = [self._speech.tokenizer.decode(ids).strip() for ids in finished]
        return [[{"role": "user", "content": text}] for text in texts if text]

    def _answer(self, asked: Sequence[Messages], shard: int) -> Iterator[Example]:
        """Answer turn by turn; every answer is an example."""
        waiting = [list(messages) for messages in asked]
        opened = [digest(repr(_first_question(messages))) for messages in asked]
        histories: list[Messages] = [[] for _ in asked]
        turn = 0
        while True:
            open_ones = [
                index
                for index, (messages, history) in enumerate(
                    zip(waiting, histories, strict=True)
                )
                if _take_turn(messages, history)
            ]
            if not open_ones:
                return
            prompts = [self._prompt(histories[index]) for index in open_ones]
            answers = continue_texts(
                self._target,
                prompts,
                limit=self._plan.answer_tokens,
                stops=self._stops,
                sampling=SamplingParams(temperature=self._plan.answer_temperature),
                key=key_of(self._plan.seed, Stream.ANSWERS + turn, shard),
                cancelled=self._cancelled,
            )
            for index, prompt, ids in zip(open_ones, prompts, answers, strict=True):
                history = histories[index]
                yield Example((*prompt, *ids), len(prompt), opened[index])
                text = self._speech.tokenizer.decode(ids)
                history.append({"role": "assistant", "content": text})
            turn += 1

    def _prompt(self, messages: Messages) -> list[int]:
        asked = Generate(id="", messages=tuple(messages))
        return list(self._speech.prompt(asked).token_ids)

    def _opening(self) -> list[int]:
        """The chat template up to where the user's words begin."""
        message = {"role": "user", "content": _MARKER}
        text = self._speech.prompt(Generate(id="", messages=(message,))).text
        before, found, _ = text.partition(_MARKER)
        opening = self._speech.tokenizer.encode(before)
        if not found or not opening:
            raise TemplateError(
                "the chat template gives the target nothing to begin a question with",
                fix=["give prompts in a JSONL file"],
            )
        return opening


def _first_question(messages: Messages) -> dict[str, Any]:
    """What the user says first; instructions before it may open every conversation."""
    asked = (message for message in messages if message.get("role") == "user")
    return next(asked, messages[0])


def _take_turn(waiting: Messages, history: Messages) -> bool:
    """Move the messages up to and including the next of the user's."""
    while waiting:
        message = waiting.pop(0)
        history.append(message)
        if message.get("role") == "user":
            return True
    return False
