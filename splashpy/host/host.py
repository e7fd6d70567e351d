# SPDX-License-Identifier: Apache-2.0
"""The engine host: commands in, events out.

One I/O thread does the text work (templates, tokenizer, detokenizer, channels); the
engine's own thread does every MLX call. Commands and engine events meet in one inbox,
so the host has no lock of its own. Pings are answered by whoever brings them: a long
text is no sign that the host is dead.
"""

from __future__ import annotations

import base64
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from time import monotonic

from splashpy import blas, protocol
from splashpy.cache.disk.lookup_file import LookupFile
from splashpy.dialogue.detokenizer import token_bytes
from splashpy.dialogue.prompt import Prompt
from splashpy.engine import calibration
from splashpy.engine.engine import Emitted, Engine, LoadFailed
from splashpy.engine.loading import Loaded, LoadRequest
from splashpy.engine.request import Failed, Finished, LookedUp
from splashpy.engine.row_kernels import may_run
from splashpy.engine.shelf import wall_clock
from splashpy.engine.task import answer_room
from splashpy.errors import InternalError, SplashError, UsageError
from splashpy.host.answer import Answer, failure
from splashpy.host.device import device, memory_bytes
from splashpy.host.far_too_long import about_tokens
from splashpy.host.lookups import describe
from splashpy.host.model import Speech, resolve_request
from splashpy.host.ranked import RankedTokens
from splashpy.package.model_directory import ModelDirectory
from splashpy.paths import Paths
from splashpy.protocol import Command, Event
from splashpy.version import __version__

Emit = Callable[[Event], None]

_BUSY_SECONDS = 600.0  # with one text, after which the thread hangs


class Host:
    """Serves one client.

    Args:
        emit: receives every event, on the I/O thread, and ``Pong`` on the one that
            brings commands; must not block for long.
        ended: called once, when the host has ended.
    """

    def __init__(self, emit: Emit, ended: Callable[[], None] = lambda: None):
        self._emit, self._ended = emit, ended
        self._inbox: queue.SimpleQueue[Command | Emitted | None] = queue.SimpleQueue()
        self._engine = Engine(self._inbox.put)
        self._answers: dict[str, Answer] = {}
        self._speech: Speech | None = None
        self._context_max = 0
        self._began = 0.0  # with what the thread does now; 0 while it waits
        # What was asked, until its prompt was looked up; and where that is told.
        self._asked: dict[str, tuple[protocol.Generate, Prompt]] = {}
        self._lookups: LookupFile | None = None
        self._model = ""
        # Loads on their way, oldest first; the engine answers them in this order.
        self._loading: deque[tuple[protocol.Load, Speech]] = deque()
        self._thread = threading.Thread(
            target=self._run, name="splashpy-host", daemon=True
        )
        self._thread.start()

    def handle(self, command: Command) -> None:
        """Take a command; returns at once."""
        if isinstance(command, protocol.Ping):
            self._emit(protocol.Pong(n=command.n, stuck=self._overdue()))
        else:
            self._inbox.put(command)

    def _overdue(self) -> str:
        """Why no answer will ever come; empty where one may."""
        busy = monotonic() - self._began if self._began else 0.0
        if busy > _BUSY_SECONDS:
            return f"one text has been worked on for {busy:.0f} seconds"
        return self._engine.overdue()

    def close(self, timeout: float | None = None) -> None:
        """Stop all work and end both threads; may be called twice."""
        self._inbox.put(None)
        self._engine.close(timeout)
        self._thread.join(timeout)

    def _run(self) -> None:
        while (item := self._inbox.get()) is not None:
            self._began = monotonic()
            try:
                self._dispatch(item)
            except SplashError as error:
                self._fail(item, error)
            except Exception as error:  # noqa: BLE001 - a request must not end the host
                self._fail(item, InternalError(repr(error)))
            self._began = 0.0
            if isinstance(item, protocol.Shutdown):
                break
        self._ended()

    def _fail(self, item: Command | Emitted, error: SplashError) -> None:
        """Answer what was asked, under its own id."""
        request_id = getattr(item, "id", "")
        if not isinstance(item, Command):  # the text of an answer cannot go on
            self._answers.pop(request_id, None)
            self._asked.pop(request_id, None)
            self._engine.cancel(request_id)
        self._emit(failure(error, request_id))

    def _dispatch(self, item: Command | Emitted) -> None:  # noqa: C901 - one table
        match item:
            case protocol.Ping():
                pass  # answered by whoever brought it
            case protocol.Hello():
                self._hello()
            case protocol.Load():
                self._start_loading(item)
            case protocol.Generate():
                self._generate(item)
            case protocol.Cancel():
                self._engine.cancel(item.id)
            case protocol.Count():
                self._count(item)
            case protocol.Tokenize():
                self._tokenize(item)
            case protocol.Detokenize():
                self._detokenize(item)
            case protocol.Unload():
                self._speech = None
                self._engine.unload()
            case protocol.Shutdown():
                self._engine.close(item.grace_ms / 1e3)
            case protocol.LoadProgress() | protocol.Memory() | protocol.Log():
                self._emit(item)
            case protocol.Phases() | protocol.Shed():
                self._emit(item)
            case Loaded():
                self._ready(item)
            case LoadFailed():
                self._loading.popleft()
                if not self._loading:
                    self._speech = None
                self._emit(failure(item.error, ""))
            case _:
                self._follow(item)

    def _hello(self) -> None:
        self._emit(
            protocol.EngineHello(
                proto=protocol.PROTO,
                version=__version__,
                pid=os.getpid(),
                mlx=version("mlx"),
                device=device(str(blas.prepare())),
                kernels=may_run(),
            )
        )

    def _start_loading(self, command: protocol.Load) -> None:
        directory = ModelDirectory.open(Path(command.model))
        speech = Speech.from_directory(directory, command.options.max_context)
        self._speech = speech
        self._loading.append((command, speech))
        request = LoadRequest.of(
            directory, command.options, speech.context_max, memory_bytes=memory_bytes()
        )
        costs_file = Paths.default().state / calibration.FILE
        self._engine.load(replace(request, costs_file=costs_file))

    def _ready(self, loaded: Loaded) -> None:
        command, speech = self._loading.popleft()
        options = command.options
        told = options.cache_dir is not None and options.cache_disk != 0
        self._lookups = LookupFile(Path(options.cache_dir or "")) if told else None
        self._model = command.name or command.model
        facts = loaded.target.facts
        self._context_max = facts.context_max
        plan = loaded.plan
        self._emit(
            protocol.Ready(
                model=command.name or command.model,
                revision=command.revision,
                context_max=facts.context_max,
                block_size=loaded.block_size,
                draft=loaded.draft,
                effort_levels=speech.effort_levels,
                effort_default=speech.effort_default,
                tools=speech.tool_format is not None,
                sampling_defaults=speech.sampling,
                memory=protocol.MemoryPlan(
                    weights=facts.weight_bytes,
                    draft=loaded.draft_bytes,
                    kv_per_token=facts.kv_bytes_per_token,
                    kv=facts.kv,
                    workspace=plan.needs.workspace if plan else 0,
                    budget=plan.budget if plan else 0,
                ),
                infill=speech.infill_tokens is not None,
                reasoning=speech.reasoning_tags,
                vocab_size=speech.tokenizer.vocab_size,
                bos=_spelled(speech, speech.tokenizer.bos_token_id),
                eos=_spelled(speech, min(speech.tokenizer.eos_token_ids, default=None)),
                template=speech.template.source,
                lanes=loaded.lanes,
            )
        )

    def _generate(self, command: protocol.Generate) -> None:
        speech = self._loaded_speech()
        if command.id in self._answers:
            raise UsageError(f"request id {command.id!r} is already in use")
        context = self._context_max or speech.context_max
        if about := about_tokens(speech.tokenizer, command, context):
            answer_room(about, context, prefill_only=command.prefill_only)
        prompt = speech.prompt(command)
        request = resolve_request(command, prompt, speech)
        length = len(prompt.token_ids)
        answer_room(length, context, prefill_only=command.prefill_only)
        turn = speech.turn(command, prompt, request.stop_token_ids)
        ranked = None
        if request.logprobs is not None or request.prompt_logprobs is not None:
            turn.align()
            ranked = RankedTokens(speech.tokenizer)
        self._answers[command.id] = Answer(
            id=command.id,
            turn=turn,
            stop_engine=self._engine.cancel,
            return_token_ids=command.return_token_ids,
            ranked=ranked,
            constraint=command.constraint,
            reasons_anyway=speech.reasons_anyway(command),
        )
        self._emit(protocol.Accepted(id=command.id, prompt=length))
        if self._lookups is not None:
            self._asked[command.id] = command, prompt
        self._engine.submit(request)

    def _count(self, command: protocol.Count) -> None:
        prompt = self._loaded_speech().prompt(command)
        self._emit(
            protocol.Counted(
                id=command.id,
                tokens=len(prompt.token_ids),
                text=prompt.text if command.detail else "",
                token_ids=prompt.token_ids if command.detail else (),
            )
        )

    def _tokenize(self, command: protocol.Tokenize) -> None:
        tokenizer = self._loaded_speech().tokenizer
        bos = command.add_special and tokenizer.adds_bos
        if command.parse_special:
            ids = tokenizer.encode(command.text, add_special_tokens=bos)
        else:
            ids = tokenizer.encode_literal(command.text)
            ids = [tokenizer.bos_token_id or 0, *ids] if bos else ids
        pieces = (base64.b64encode(token_bytes(tokenizer, i)).decode() for i in ids)
        self._emit(
            protocol.Tokens(id=command.id, token_ids=tuple(ids), pieces=tuple(pieces))
        )

    def _detokenize(self, command: protocol.Detokenize) -> None:
        tokenizer = self._loaded_speech().tokenizer
        wrong = [i for i in command.token_ids if not 0 <= i < tokenizer.vocab_size]
        if wrong:
            raise UsageError(
                f"{wrong[0]} is not a token id",
                why=f"ids are 0 to {tokenizer.vocab_size - 1}",
            )
        text = tokenizer.decode(command.token_ids, skip_special_tokens=False)
        self._emit(protocol.Tokens(id=command.id, text=text))

    def _note(self, event: LookedUp) -> None:
        """Write down what a lookup came to, for ``splashpy cache why``."""
        asked = self._asked.pop(event.id, None)
        if asked is not None and self._lookups is not None:
            about = describe(*asked, event.found, self._loaded_speech())
            self._lookups.append({"at": wall_clock(), "model": self._model, **about})

    def _warn(self, event: LookedUp) -> None:
        count = event.found.damaged
        if count:
            records = "record" if count == 1 else "records"
            text = (
                f"{count} damaged {records} of kept prompts deleted; what they held "
                "is read again"
            )
            self._emit(protocol.Log(level="warn", text=text))

    def _loaded_speech(self) -> Speech:
        if self._speech is None:
            raise UsageError("no model is loaded", fix=["send a load command first"])
        return self._speech

    def _follow(self, event: Emitted) -> None:
        answer = self._answers.get(getattr(event, "id", ""))
        if answer is None:
            return
        if isinstance(event, Finished | Failed):
            del self._answers[event.id]
            self._asked.pop(event.id, None)
        if isinstance(event, LookedUp):
            self._note(event)
            self._warn(event)
        for out in answer.follow(event):  # type: ignore[arg-type]
            self._emit(out)


def _spelled(speech: Speech, token_id: int | None) -> str:
    return "" if token_id is None else speech.tokenizer.token_of(token_id) or ""
