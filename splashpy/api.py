# SPDX-License-Identifier: Apache-2.0
"""splashpy from Python.

::

    import splashpy

    with splashpy.load("demo") as model:
        print(model.generate("Name three primary colours.").text)
        for piece in model.stream("And three secondary ones?"):
            print(piece.text, end="")
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from splashpy.client.client import EngineClient
from splashpy.client.in_process import InProcessClient
from splashpy.client.loading import load_model
from splashpy.errors import ModelMissingError, error_from
from splashpy.package.library import Library
from splashpy.packing.pull import pull
from splashpy.paths import Paths
from splashpy.protocol import (
    Cancel,
    Cycle,
    Done,
    Event,
    Failure,
    FinishReason,
    Generate,
    Load,
    LoadOptions,
    LoadProgress,
    Piece,
    Ready,
    Sampling,
    Spec,
    Timing,
    Usage,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A finished answer.

    Attributes:
        text: the answer.
        reasoning: what the model thought before it.
        finish_reason: ``stop``, ``tool_calls``, ``length``, ``context_full`` or
            ``cancelled``.
        token_ids: every token of the answer, the end token included.
        usage: token counts.
        timing: durations in milliseconds.
        spec: what speculation did.
    """

    text: str
    reasoning: str
    finish_reason: FinishReason
    token_ids: tuple[int, ...]
    usage: Usage
    timing: Timing
    spec: Spec


Prompt = str | Sequence[dict[str, Any]]
"""A user's message, or OpenAI message objects."""


class Model:
    """A loaded model; made by :func:`load`. Use it from one thread at a time."""

    def __init__(self, client: EngineClient, ready: Ready):
        self.ready = ready
        self._client = client
        self._ids = itertools.count(1)

    def events(self, prompt: Prompt, **options: Any) -> Iterator[Event]:
        """Every protocol event of one answer; the last is ``Done``.

        Leaving the loop early cancels the request.

        Args:
            prompt: a user's message or OpenAI message objects.
            **options: fields of :class:`~splashpy.protocol.Generate` and of
                :class:`~splashpy.protocol.Sampling`, such as ``max_tokens``,
                ``temperature``, ``seed``, ``stop``; ``raw=True`` takes a string as it
                is, without the chat template.

        Raises:
            SplashError: the request failed.
        """
        command = _generate(f"api-{next(self._ids)}", prompt, options)
        self._client.send(command)
        finished = False
        try:
            while not finished:
                event = self._client.receive()
                if event is None or getattr(event, "id", None) != command.id:
                    continue
                finished = isinstance(event, Done | Failure)
                if isinstance(event, Failure):
                    raise error_from(event)
                yield event
        finally:
            if not finished:
                self._client.send(Cancel(id=command.id))

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[Piece]:
        """Text as it is decided; see :meth:`events` for arguments."""
        for event in self.events(prompt, **options):
            if isinstance(event, Cycle):
                yield from event.pieces

    def generate(self, prompt: Prompt, **options: Any) -> Reply:
        """The whole answer; see :meth:`events` for arguments."""
        pieces: list[Piece] = []
        token_ids: list[int] = []
        for event in self.events(prompt, return_token_ids=True, **options):
            if isinstance(event, Cycle):
                pieces += event.pieces
                token_ids += event.token_ids
            elif isinstance(event, Done):
                return Reply(
                    text="".join(p.text for p in pieces if p.channel == "c"),
                    reasoning="".join(p.text for p in pieces if p.channel == "r"),
                    finish_reason=event.reason,
                    token_ids=tuple(token_ids),
                    usage=event.usage,
                    timing=event.timing,
                    spec=event.spec,
                )
        raise AssertionError("a request ends with Done or an error")

    def close(self) -> None:
        """Free the model."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def load(
    model: str | None = None,
    *,
    options: LoadOptions | None = None,
    paths: Paths | None = None,
    progress: Callable[[LoadProgress], None] | None = None,
) -> Model:
    """Load a model in this process.

    Args:
        model: short name, ``OWNER/REPO``, or a local directory; None: the only
            installed model, else ``demo``. ``demo`` is built on first use.
        options: wishes about drafting and context.
        paths: where splashpy keeps its files.
        progress: called while files and weights arrive.

    Raises:
        SplashError: the model cannot be found or loaded.
    """
    paths = paths or Paths.default()
    report = progress or (lambda _: None)
    library = Library(paths)
    name = library.default_model(model)
    try:
        found = library.find(name)
    except ModelMissingError:
        if name != "demo":
            raise
        pull(name, paths, progress=report)
        found = library.find(name)
    client = InProcessClient()
    try:
        wish = Load(
            model=str(found.path), name=found.name, options=options or LoadOptions()
        )
        return Model(client, load_model(client, wish, report))
    except BaseException:  # Ctrl-C too: nobody else holds the engine
        client.close(now=True)
        raise


def _generate(request_id: str, prompt: Prompt, options: dict[str, Any]) -> Generate:
    sampling = {
        name: options.pop(name)
        for name in Sampling.__dataclass_fields__
        if name in options
    }
    if isinstance(sampling.get("stop"), str):
        sampling["stop"] = (sampling["stop"],)
    if options.pop("raw", False):
        source: dict[str, Any] = {"prompt": prompt}
    elif isinstance(prompt, str):
        source = {"messages": ({"role": "user", "content": prompt},)}
    else:
        source = {"messages": tuple(prompt)}
    return Generate(id=request_id, sampling=Sampling(**sampling), **source, **options)
