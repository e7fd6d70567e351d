# SPDX-License-Identifier: Apache-2.0
"""The response object and the events it is told by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from splashpy.protocol import Cycle, Prefill, RankedToken, ToolDelta
from splashpy.server.errors import ApiError
from splashpy.server.logprobs import token_logprobs
from splashpy.server.outcome import Block, Outcome, extension, prompt_progress
from splashpy.server.streaming import event

_PREFIXES = {"reasoning": "rs_", "text": "msg_", "call": "fc_"}


class ResponseShape:
    """Writes a response and its events.

    Args:
        response: as it begins.
        original: name fields of a call, by the name the model wrote.
        finished: told of the complete response.
        now: whole seconds since 1970.
    """

    def __init__(
        self,
        response: dict[str, Any],
        original: Callable[[str], dict[str, str]],
        finished: Callable[[dict[str, Any]], None],
        now: Callable[[], int],
    ):
        self._response = response
        self._original = original
        self._finished = finished
        self._now = now
        self._sequence = -1
        self._index = -1
        self._open: Block | None = None
        self._text = ""
        self._untold: list[RankedToken] = []  # tokens of text that comes next
        self._output: list[dict[str, Any]] = []
        self._started = False

    def start(self, outcome: Outcome) -> Iterator[bytes]:
        """The response without output."""
        yield from self._start()

    def take(self, outcome: Outcome, event: Cycle | ToolDelta) -> Iterator[bytes]:
        """Deltas of the item that is being written; items never overlap."""
        if isinstance(event, ToolDelta):
            yield from self._enter(outcome.call(event.index))
            if event.args_delta:
                yield self._delta(event.args_delta)
            if event.ended:
                yield from self._leave()
            return
        self._untold += [token for token in event.logprobs if token.channel == "c"]
        for piece in event.pieces:
            if piece.channel != "x":
                kind = "reasoning" if piece.channel == "r" else "text"
                yield from self._enter(Block(kind))
                yield self._delta(piece.text)

    def quiet(self, progress: Prefill | None) -> bytes:
        """A real event: idle timers of clients look at nothing else."""
        if self._open is not None:
            return self._delta("")
        chunks = b"" if self._started else b"".join(self._start())
        told = (
            {} if progress is None else {"prompt_progress": prompt_progress(progress)}
        )
        return chunks + self._event(
            "response.in_progress", response=self._now_as(), **told
        )

    def end(self, outcome: Outcome) -> Iterator[bytes]:
        """The last item, then the complete response."""
        yield from self._leave()
        if self._index < 0:
            yield from self._enter(Block("text"))
            yield from self._leave()
        response = self._complete(outcome, self._output)
        yield self._event(f"response.{response['status']}", response=response)

    def close(self, outcomes: list[Outcome]) -> Iterator[bytes]:
        """Nothing follows the complete response."""
        yield from ()

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """The response, failed."""
        if not self._started:
            yield from self._start()
        told = {"code": error.code, "message": error.message}
        response = {**self._now_as(), "status": "failed", "error": told}
        yield self._event("response.failed", response=response)

    def body(self, outcomes: list[Outcome]) -> Any:
        """The whole response."""
        (outcome,) = outcomes
        blocks = outcome.shown or [Block("text")]
        items = [self._item(block, n, block.text) for n, block in enumerate(blocks)]
        return self._complete(outcome, items)

    # --- items ------------------------------------------------------------------------

    def _start(self) -> Iterator[bytes]:
        if self._started:
            return
        self._started = True
        yield self._event("response.created", response=self._now_as())
        yield self._event("response.in_progress", response=self._now_as())

    def _enter(self, block: Block) -> Iterator[bytes]:
        now = self._open
        if now is not None and (now.kind, now.index) == (block.kind, block.index):
            return
        yield from self._leave()
        self._open, self._text = block, ""
        self._index += 1
        item = self._item(block, self._index, "", status="in_progress")
        yield self._event(
            "response.output_item.added", output_index=self._index, item=item
        )
        if block.kind == "reasoning":
            yield self._of_item(
                "response.reasoning_summary_part.added",
                summary_index=0,
                part={"type": "summary_text", "text": ""},
            )
        elif block.kind == "text":
            yield self._of_item(
                "response.content_part.added", content_index=0, part=_part("")
            )

    def _delta(self, text: str) -> bytes:
        self._text += text
        assert self._open is not None
        if self._open.kind == "reasoning":
            name = "response.reasoning_summary_text.delta"
            return self._of_item(name, summary_index=0, delta=text)
        if self._open.kind == "call":
            return self._of_item("response.function_call_arguments.delta", delta=text)
        told, self._untold = self._untold, []
        self._open.ranked += told
        return self._of_item(
            "response.output_text.delta",
            content_index=0,
            delta=text,
            logprobs=token_logprobs(told),
        )

    def _leave(self) -> Iterator[bytes]:
        block, text = self._open, self._text
        if block is None:
            return
        yield from self._text_done(block, text)
        status = "completed" if block.whole else "incomplete"
        item = self._item(block, self._index, text, status=status)
        self._output.append(item)
        yield self._event(
            "response.output_item.done", output_index=self._index, item=item
        )
        self._open = None

    def _text_done(self, block: Block, text: str) -> Iterator[bytes]:
        if block.kind == "call":
            name = "response.function_call_arguments.done"
            yield self._of_item(name, **self._original(block.name), arguments=text)
        elif block.kind == "reasoning":
            name = "response.reasoning_summary_text.done"
            yield self._of_item(name, summary_index=0, text=text)
            part = {"type": "summary_text", "text": text}
            name = "response.reasoning_summary_part.done"
            yield self._of_item(name, summary_index=0, part=part)
        else:
            block.ranked += self._untold
            self._untold = []
            part = _part(text, block.ranked)
            name, logprobs = "response.output_text.done", part["logprobs"]
            yield self._of_item(name, content_index=0, text=text, logprobs=logprobs)
            name = "response.content_part.done"
            yield self._of_item(name, content_index=0, part=part)

    def _item(
        self, block: Block, index: int, text: str, *, status: str = "completed"
    ) -> dict[str, Any]:
        item_id = self._item_id(block, index)
        if block.kind == "call":
            return {
                "id": item_id,
                "type": "function_call",
                "status": status,
                "call_id": block.call_id,
                **self._original(block.name),
                "arguments": text,
            }
        if block.kind == "reasoning":
            return {
                "id": item_id,
                "type": "reasoning",
                "status": status,
                "summary": [{"type": "summary_text", "text": text}] if text else [],
                "content": [{"type": "reasoning_text", "text": text}] if text else [],
                "encrypted_content": None,
            }
        begun = status != "in_progress"
        return {
            "id": item_id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [_part(text, block.ranked)] if begun else [],
        }

    def _item_id(self, block: Block, index: int) -> str:
        stem = self._response["id"].removeprefix("resp_")
        return f"{_PREFIXES[block.kind]}{stem}_{index}"

    # --- events -----------------------------------------------------------------------

    def _of_item(self, name: str, /, **fields: Any) -> bytes:
        assert self._open is not None
        item_id = self._item_id(self._open, self._index)
        return self._event(name, item_id=item_id, output_index=self._index, **fields)

    def _event(self, name: str, /, **fields: Any) -> bytes:
        self._sequence += 1
        return event({"type": name, "sequence_number": self._sequence, **fields})

    def _now_as(self) -> dict[str, Any]:
        return {**self._response, "output": list(self._output)}

    def _complete(
        self, outcome: Outcome, output: list[dict[str, Any]]
    ) -> dict[str, Any]:
        done = outcome.done
        assert done is not None
        cut = outcome.finish == "length"
        usage = done.usage
        response = {
            **self._response,
            "status": "incomplete" if cut else "completed",
            "completed_at": self._now(),
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": output,
            "usage": {
                "input_tokens": usage.prompt,
                "input_tokens_details": {"cached_tokens": usage.cached},
                "output_tokens": usage.completion,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning},
                "total_tokens": usage.prompt + usage.completion,
            },
            "splashpy": extension(done),
        }
        self._finished(response)
        return response


def _part(text: str, ranked: Sequence[RankedToken] = ()) -> dict[str, Any]:
    return {
        "type": "output_text",
        "text": text,
        "annotations": [],
        "logprobs": token_logprobs(ranked),
    }
