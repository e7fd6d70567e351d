# SPDX-License-Identifier: Apache-2.0
"""The whole language between an interface and the engine host.

Commands go down, events come up; both are frozen dataclasses of numbers and strings.
They cross a process boundary as one JSON object per line (``wire.py``) and cross in
memory as they are.

Rules of the language:

- a ``Piece`` is complete text, never half a character;
- the ``c`` pieces of a request, concatenated, are the final content exactly;
- ``Prefill.processed`` never decreases;
- every ``Generate`` is answered by exactly one ``Done`` or one ``Failure`` with its id;
- unknown fields and unknown event types are ignored by the reader.

This module imports nothing heavy, so every interface may use it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

PROTO = 1
MAX_LINE_BYTES = 1 << 20  # longest event line; larger events are split by the writer

Kind = Literal["a", "t", "l"]
"""Where a token came from: accepted draft, the target itself, prompt lookup."""

Channel = Literal["c", "r", "x"]
"""What a token is part of: content, reasoning, tool call."""

KvFormat = Literal["bf16", "q8"]
"""How full attention keeps keys and values: as computed, or rounded to 8 bits."""

KvWish = Literal["auto", "bf16", "q8"]
"""A format, or whichever lets the context fit into memory."""

Pressure = Literal["normal", "warn", "critical"]
"""How short of memory the computer is."""

Phase = Literal["waiting_prefix", "prefill", "decode", "suspended", "restoring"]
"""What a request that was let in does: it waits until another has read what both begin
with, reads its prompt, writes, is set aside for want of memory, or reads again what it
had read before that."""

ToolChoice = Literal["auto", "none", "required"]
"""Whether a request may, must not or must be answered by a tool call."""

FinishReason = Literal["stop", "length", "cancelled", "tool_calls", "context_full"]


class Piece(NamedTuple):
    """Some text of one origin and one channel."""

    text: str
    kind: Kind
    channel: Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the target's distribution becomes a token. None: the package's default.

    Order of application: logit bias, penalties, temperature, top-k, top-p, min-p.

    Attributes:
        temperature: 0 picks the most likely token.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set whose mass reaches this; 1 keeps all.
        min_p: drop tokens below this fraction of the most likely one; 0 keeps all.
        repetition_penalty: divides positive and multiplies negative logits of tokens
            seen in the window; 1 is off.
        presence_penalty: subtracted once from tokens seen in the window; 0 is off.
        frequency_penalty: subtracted per occurrence in the window; 0 is off.
        penalty_window: how many of the latest tokens (prompt and answer) the three
            penalties look at; None looks at all of them.
        logit_bias: (token id, added logit) pairs.
        seed: same seed, same text, whatever the drafter; None draws a fresh one.
        stop: strings that end the answer; they are not part of it.
        stop_token_ids: token ids that end the answer, beside the model's own.
        ignore_eos: go on after the model's own end tokens (for measurements).
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    penalty_window: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """Wishes about the engine, fixed when a model is loaded.

    Attributes:
        draft: directory of a drafter that replaces the package's; None keeps it.
        no_draft: decode one token at a time.
        lookup: propose continuations of repeated text (n-gram lookup); None: where
            that is expected to pay on this machine, True: at every match.
        block_size: rows of one verify pass, at most the trained value; None: trained.
        draft_bits: weight bits of the drafter; None: as packaged.
        max_context: tokens of prompt plus answer; None: the model's own limit.
        prefix_cache: keep the states of earlier requests for those that begin alike.
        cache_ram: bytes they may take in memory; None: what the machine leaves.
        cache_dir: directory where they survive a restart; None: nowhere.
        cache_disk: bytes they may take there, 0: none; None: what the disk leaves.
        kv: how full attention keeps keys and values.
        max_memory: bytes for everything; None: what the machine gives.
        max_concurrent: requests that run at a time, where memory allows so many.
        kernels: compute with kernels of our own where they win.
        wired: keep weights in physical memory, where that is possible and harmless.
    """

    draft: str | None = None
    no_draft: bool = False
    lookup: bool | None = None
    block_size: int | None = None
    draft_bits: int | None = None
    max_context: int | None = None
    prefix_cache: bool = True
    cache_ram: int | None = None
    cache_dir: str | None = None
    cache_disk: int | None = None
    kv: KvWish = "auto"
    max_memory: int | None = None
    max_concurrent: int = 4
    kernels: bool = True
    wired: bool = False


# --- commands -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Opens the conversation; the answer is ``EngineHello``."""

    op: ClassVar[str] = "hello"
    proto: int = PROTO


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load the model in directory ``model``; ``name`` is how people call it."""

    op: ClassVar[str] = "load"
    model: str
    name: str = ""
    revision: str = ""
    options: LoadOptions = LoadOptions()


ConstraintKind = Literal[
    "json_object", "json_schema", "regex", "choice", "lark", "gbnf"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """What an answer must look like; reasoning before it is free.

    Attributes:
        kind: how ``text`` is written; ``json_object`` needs none.
        text: a JSON Schema, a regular expression, a JSON list of strings to choose
            from, or a grammar in Lark's or llama.cpp's notation.
        place: what the request calls it, for errors.
    """

    kind: ConstraintKind
    text: str = ""
    place: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Infill:
    """A gap in a file to be filled, by a model trained for that.

    Attributes:
        prefix: text before the gap.
        suffix: text after the gap.
        line: what is already written of the gap's first line.
        extra: other files, name and text, as context.
        room: tokens the answer will need at most, for cutting the context.
    """

    prefix: str = ""
    suffix: str = ""
    line: str = ""
    extra: tuple[tuple[str, str], ...] = ()
    room: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """Answer a conversation, continue a raw prompt, or fill a gap.

    Exactly one of ``messages``, ``prompt``, ``prompt_ids`` and ``infill`` is given.

    Attributes:
        id: chosen by the caller, unique while the request lives.
        messages: OpenAI message objects; empty when ``prompt`` is given.
        prompt: raw text that no chat template touches.
        prompt_ids: the same as token ids.
        infill: a gap to fill.
        tools: OpenAI tool objects.
        tool_choice: whether a call may, must not or must be the answer.
        tool_name: with ``required``: the only tool that may be called.
        allowed_tools: the only tools that may be called; empty: all of them.
        parallel_tool_calls: False ends the answer with its first whole call.
        options: further variables of the chat template.
        continue_final: the last message is the assistant's and is continued.
        foreground: somebody waits at a keyboard; runs before requests that wait.
        sampling: None fields mean the package's defaults.
        effort: reasoning effort, one of ``Ready.effort_levels``.
        max_tokens: answer tokens at most; None: what the context leaves.
        prefill_only: read the prompt, answer nothing.
        draft: False decodes this request one token at a time.
        constraint: what the answer must look like; None leaves it free.
        reasoning_budget: tokens of reasoning at most, then the answer begins; None: no
            limit. Room for an answer is kept from ``max_tokens``.
        return_token_ids: fill ``Cycle.token_ids``.
        logprobs: fill ``Cycle.logprobs``, with so many alternatives a token.
        logprobs_drawn: they are of what tokens were drawn from, not the target's own.
        prompt_logprobs: fill ``Prefill.logprobs``, likewise; the whole prompt is read
            for it.
        gather_ms: cycles after the first may be told so much later, together. For an
            interface that draws seldom and shares a processor with the engine.
    """

    op: ClassVar[str] = "generate"
    id: str
    messages: tuple[dict[str, Any], ...] = ()
    prompt: str | None = None
    prompt_ids: tuple[int, ...] = ()
    infill: Infill | None = None
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: ToolChoice = "auto"
    tool_name: str = ""
    allowed_tools: tuple[str, ...] = ()
    parallel_tool_calls: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    continue_final: bool = False
    foreground: bool = False
    sampling: Sampling = Sampling()
    effort: str | None = None
    max_tokens: int | None = None
    prefill_only: bool = False
    draft: bool = True
    constraint: Constraint | None = None
    reasoning_budget: int | None = None
    return_token_ids: bool = False
    logprobs: int | None = None
    logprobs_drawn: bool = False
    prompt_logprobs: int | None = None
    gather_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Stop a request at the next safe point; its ``Done`` says ``cancelled``."""

    op: ClassVar[str] = "cancel"
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Count the prompt tokens of a request; answered by ``Counted``.

    The fields are those of ``Generate``; ``generation_prompt``: with the beginning of
    an answer, as generating has it; ``detail``: also the prompt's text and token ids.
    """

    op: ClassVar[str] = "count"
    id: str
    messages: tuple[dict[str, Any], ...] = ()
    prompt: str | None = None
    prompt_ids: tuple[int, ...] = ()
    infill: Infill | None = None
    tools: tuple[dict[str, Any], ...] = ()
    effort: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    continue_final: bool = False
    generation_prompt: bool = True
    detail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenize:
    """Cut a text into tokens; answered by ``Tokens``.

    ``add_special``: begin with BOS where the model wants it; ``parse_special``: control
    strings become control tokens.
    """

    op: ClassVar[str] = "tokenize"
    id: str
    text: str
    add_special: bool = False
    parse_special: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Detokenize:
    """Text of token ids; answered by ``Tokens``."""

    op: ClassVar[str] = "detokenize"
    id: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unload:
    """Free the model."""

    op: ClassVar[str] = "unload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """Is the host alive? Answered at once, even while the target computes."""

    op: ClassVar[str] = "ping"
    n: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """Stop everything within ``grace_ms`` and end."""

    op: ClassVar[str] = "shutdown"
    grace_ms: int = 1500


Command = (
    Hello
    | Load
    | Generate
    | Cancel
    | Count
    | Tokenize
    | Detokenize
    | Unload
    | Ping
    | Shutdown
)


# --- events ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The machine the engine computes on; 0 where the platform does not say."""

    name: str = ""
    gpu_cores: int = 0
    memory_bytes: int = 0
    working_set_bytes: int = 0
    blas: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHello:
    """The host is there; ``kernels``: it may compute with kernels of its own."""

    ev: ClassVar[str] = "hello"
    proto: int
    version: str
    pid: int
    mlx: str = ""
    device: Device = Device()
    kernels: bool = False


LoadPhase = Literal[
    "resolve", "download", "verify", "prepare", "map", "compile", "warmup"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """How far loading is: ``done`` of ``total`` in ``unit``; total 0 is unknown."""

    ev: ClassVar[str] = "load"
    phase: LoadPhase
    done: int = 0
    total: int = 0
    unit: Literal["bytes", "tensors", "kernels", ""] = ""
    item: str = ""
    rate: float = 0.0


DraftStateName = Literal["active", "lookup", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftState:
    """Whether drafts are made, and if not, why."""

    state: DraftStateName = "off"
    reason: str = ""
    bits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Bytes; ``kv_per_token``: of state per token of context, kept as ``kv`` says.

    ``workspace`` is for what passes compute, ``budget`` what everything may take; 0
    where nobody knows.
    """

    weights: int = 0
    draft: int = 0
    kv_per_token: int = 0
    kv: KvFormat = "bf16"
    workspace: int = 0
    budget: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The model is loaded and warm.

    ``block_size`` is the largest number of tokens a cycle of the drafter can commit
    (the target's own token counted); it is the scale of every acceptance length shown.
    Where the text repeats itself, lookup may commit more.

    ``tools``: the template shows tools and the calls of the model can be read.
    ``infill``: the model has the tokens to fill gaps. ``reasoning``: the pair of tags
    around its reasoning, empty when it has none. ``bos``, ``eos`` and ``template`` are
    for those who ask what the model reads. ``lanes``: requests that run at a time.
    """

    ev: ClassVar[str] = "ready"
    model: str
    revision: str = ""
    context_max: int
    block_size: int
    draft: DraftState = DraftState()
    effort_levels: tuple[str, ...] = ()
    effort_default: str = ""
    vision: bool = False
    tools: bool = False
    sampling_defaults: Sampling = Sampling()
    memory: MemoryPlan = MemoryPlan()
    infill: bool = False
    reasoning: tuple[str, ...] = ()
    vocab_size: int = 0
    bos: str = ""
    eos: str = ""
    template: str = ""
    lanes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The request is sound and its prompt of ``prompt`` tokens fits the context."""

    ev: ClassVar[str] = "accepted"
    id: str
    prompt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """The request waits; ``position`` requests are before it."""

    ev: ClassVar[str] = "queued"
    id: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A token the target might have chosen; ``piece``: its bytes in base 64."""

    token_id: int
    piece: str
    logprob: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedToken:
    """A token and how likely the target itself found it.

    Attributes:
        token_id: the token.
        piece: its bytes in base 64, which may be part of a character.
        logprob: natural logarithm of its probability before bias, penalties, rules and
            temperature; None for a token nothing came before.
        channel: what it is part of.
        offset: characters of the text before it: of the answer, or of the prompt.
        top: the most likely tokens in its place, most likely first.
    """

    token_id: int
    piece: str
    logprob: float | None = None
    channel: Channel = "c"
    offset: int = 0
    top: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """How much of the prompt is read.

    ``processed`` of ``total`` tokens are done; ``cached`` of them were restored.
    ``logprobs``: of those read since the last event, where they were asked for.
    """

    ev: ClassVar[str] = "prefill"
    id: str
    total: int
    cached: int
    processed: int
    elapsed_ms: float
    logprobs: tuple[RankedToken, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """What one cycle committed.

    ``i`` = 0 is the token the prefill produced: no draft, no verify pass.
    ``committed`` counts tokens; their text may come in a later event.
    ``logprobs``, where they were asked for, are of the tokens of the text so far: those
    of text that is held back come with it, those that end the answer never.
    """

    ev: ClassVar[str] = "cycle"
    id: str
    i: int
    drafted: int
    accepted: int
    committed: int
    draft_ms: float
    verify_ms: float
    pieces: tuple[Piece, ...]
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[RankedToken, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDelta:
    """Part of a tool call; name and call_id come once, arguments grow.

    ``ended``: ``whole`` when the arguments are complete JSON, ``broken`` when the model
    did not finish them; the text of a broken call follows as content.
    """

    ev: ClassVar[str] = "tool"
    id: str
    index: int
    call_id: str = ""
    name: str = ""
    args_delta: str = ""
    ended: Literal["", "whole", "broken"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one request; ``reasoning`` is part of ``completion``."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Durations of one request in milliseconds.

    ``ttft_ms``: request accepted to first token. ``decode_ms``: first to last
    emission; ``first_emission_tokens`` are excluded from the decode rate. ``mask_ms``:
    spent on what a constraint allows, while the target computed.
    """

    queue_ms: float = 0.0
    prefill_ms: float = 0.0
    ttft_ms: float = 0.0
    decode_ms: float = 0.0
    first_emission_tokens: int = 0
    mask_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What speculation did in one request.

    Attributes:
        cycles: verify passes.
        drafted: tokens proposed.
        accepted: proposed tokens that were kept.
        looked_up: those of them that prompt lookup proposed.
        tau: acceptance length = tokens produced after the prefill token divided by
            verify passes; the target's own token is counted, so 1 is plain decoding.
        hist: hist[n - 1] = cycles that committed n tokens.
        accepted_per_position: cycles in which draft position i + 1 was kept.
        drafted_per_position: cycles in which draft position i + 1 was proposed.
        plain_cycles, drafter_cycles, lookup_cycles: what was decided for how many: to
            draft nothing, or by whom.
        saved: plain steps saved by cycles that committed more tokens than they cost.
        regret: plain steps lost by those that committed fewer. Both by the costs that
            were known when it was decided.
    """

    cycles: int = 0
    drafted: int = 0
    accepted: int = 0
    looked_up: int = 0
    tau: float = 0.0
    hist: tuple[int, ...] = ()
    accepted_per_position: tuple[int, ...] = ()
    drafted_per_position: tuple[int, ...] = ()
    plain_cycles: int = 0
    drafter_cycles: int = 0
    lookup_cycles: int = 0
    saved: float = 0.0
    regret: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The request ended well.

    Attributes:
        id: of the request.
        reason: why it ended.
        stop_text: the stop string that ended it, if one.
        valid: whether the answer became what its constraint asks for; None where there
            was none, or where a call was the answer.
        reasons_anyway: reasoning was to be off, and the model has no switch for it.
        usage: token counts.
        timing: durations.
        spec: what speculation did.
    """

    ev: ClassVar[str] = "done"
    id: str
    reason: FinishReason
    stop_text: str = ""
    valid: bool | None = None
    reasons_anyway: bool = False
    usage: Usage = Usage()
    timing: Timing = Timing()
    spec: Spec = Spec()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Bytes by what they are for, reserved ones included.

    ``weights``: target and drafter. ``lanes``: texts that are read or written.
    ``runs``: rows of earlier requests. ``states``: places to come back to, where rows
    cannot be cut. ``staging``: copies on their way to disk. ``scratch``: what passes
    compute.
    """

    weights: int = 0
    lanes: int = 0
    runs: int = 0
    states: int = 0
    staging: int = 0
    scratch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Who holds how much of the memory.

    ``budget``: what everything may take; 0 where nobody knows. ``refused``: times
    something was asked for and not granted, ``refusal``: the last time.
    """

    budget: int = 0
    held: Held = Held()
    refused: int = 0
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes in use now; ``ledger``: what they are for.

    ``wired``: bytes that cannot be paged out, where that was asked for; ``not_wired``:
    why there are none.
    """

    ev: ClassVar[str] = "memory"
    active: int = 0
    peak: int = 0
    cache: int = 0
    kv_tokens: int = 0
    pressure: Pressure = "normal"
    ledger: Ledger = Ledger()
    wired: int = 0
    not_wired: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """How many requests do what; ``queued`` ones are not let in yet."""

    ev: ClassVar[str] = "phases"
    queued: int = 0
    waiting_prefix: int = 0
    prefill: int = 0
    decode: int = 0
    suspended: int = 0
    restoring: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shed:
    """Memory was short, and something was given up.

    Attributes:
        level: how short of memory the computer was; ``normal``: what the plan allows
            was used up, or the computer has little left.
        action: ``states`` of earlier requests were dropped, or a running text was
            set aside, whose request is ``id``.
        held: bytes it took.
        id: of the request; empty for states.
        tokens: of its text.
    """

    ev: ClassVar[str] = "shed"
    level: Pressure
    action: Literal["states", "suspend"]
    held: int
    id: str = ""
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A request (``id``) or the engine (``fatal``) failed; codes as in errors.py.

    ``prompt``: tokens of the prompt, where it is too long for the context.
    """

    ev: ClassVar[str] = "error"
    id: str = ""
    code: str
    message: str
    why: str = ""
    fix: tuple[str, ...] = ()
    fatal: bool = False
    prompt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Answer to ``Count``; text and token ids only where they were asked for."""

    ev: ClassVar[str] = "counted"
    id: str
    tokens: int
    text: str = ""
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Answer to ``Tokenize`` and ``Detokenize``.

    ``pieces`` are the bytes of each token in base 64, since a token may be part of a
    character.
    """

    ev: ClassVar[str] = "tokens"
    id: str
    text: str = ""
    token_ids: tuple[int, ...] = ()
    pieces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong:
    """Answer to ``Ping``; ``stuck`` says why the engine will never answer again."""

    ev: ClassVar[str] = "pong"
    n: int = 0
    stuck: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A line worth showing to somebody who asked for details."""

    ev: ClassVar[str] = "log"
    level: Literal["debug", "info", "warn", "error"] = "info"
    text: str = ""


Event = (
    EngineHello
    | LoadProgress
    | Ready
    | Accepted
    | Queued
    | Prefill
    | Cycle
    | ToolDelta
    | Done
    | Memory
    | Phases
    | Shed
    | Failure
    | Counted
    | Tokens
    | Pong
    | Log
)


def error_fields(error: Any) -> dict[str, Any]:
    """``code, message, why, fix`` of a :class:`~splashpy.errors.SplashError`."""
    return {
        "code": error.code,
        "message": error.message,
        "why": error.why,
        "fix": tuple(error.fix),
    }
