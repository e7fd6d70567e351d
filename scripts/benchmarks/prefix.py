# SPDX-License-Identifier: Apache-2.0
"""Measure what the prefix cache saves: time to the first token, cold and warm.

Two pairs: the demo with a prompt of about 4,000 tokens (its context is 8,192), and a
tiny random hybrid, with recurrent layers and a drafter, with about 8,000. Each reads
its prompt cold once; then the same prompt again, the next turns of the conversation,
and the same prompt after a restart, from disk. Ratios are cold / warm. The time is
what a client waits: template, tokenizer, lookup, what must be read, the first token.

Looking a prompt up is measured alone: 131,072 tokens in an index of 32,768 blocks.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import measure
import tiny

import splashpy
from splashpy.api import Model
from splashpy.cache.chain import pack
from splashpy.cache.prefix import PrefixCache
from splashpy.models.attention_lanes import LaneKV
from splashpy.models.state import TargetState
from splashpy.protocol import Cycle, Done, LoadOptions

LEAST = {"repeat": 40.0, "next_turn": 40.0, "restart": 15.0}
LOOKED_UP = 131072
INDEXED = 64  # prompts of that length
_PAUSE_SECONDS = 4.0  # of a person, in which what was read goes to disk

FACTS = (
    "The harbour of the town has {} moorings, and the keeper of the light counts the "
    "boats at dusk. On day {} the wind came from the west and the ferry was late. "
)


def main() -> None:
    parser = measure.options(__doc__ or "", rounds=3)
    parser.add_argument(
        "--pair", choices=("demo", "hybrid", "both"), default="both", help="[both]"
    )
    options = parser.parse_args()
    document: dict[str, Any] = {"schema": "splashpy.bench_prefix/1"}
    document["lookup"] = look_up()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        if options.pair != "hybrid":
            document["demo"] = measured("demo", root / "a", 4000, None, options.rounds)
            document["ratios"] = document["demo"]["ratios"]
        if options.pair != "demo":
            model, drafter = tiny_hybrid(root)
            document["hybrid"] = measured(
                model, root / "b", 8000, drafter, options.rounds
            )
    rows = [["", "cold s", "repeat", "next turn", "restart"]]
    for name in ("demo", "hybrid"):
        if name in document:
            found = document[name]
            ratios = [f"{found['ratios'][key]:.0f} x" for key in LEAST]
            rows.append([name, f"{found['seconds']['cold'][0]:.1f}", *ratios])
    looked = document["lookup"]
    rows.append(["lookup of 131,072 tokens", f"{looked['ms']:.2f} ms", "", "", ""])
    measure.report(document, rows, as_json=options.json)


def tiny_hybrid(root: Path) -> tuple[str, str]:
    """Directories of a random hybrid target and a drafter for it."""
    sizes = {"max_position_embeddings": 16384}
    model = tiny.write_model(root / "target", "qwen3_5", **sizes)
    return str(model), str(tiny.write_drafter(root / "draft"))


def measured(
    model: str, cache: Path, tokens: int, drafter: str | None, rounds: int
) -> dict[str, Any]:
    """Every arm on one model, with the parts of the warm times."""
    options = LoadOptions(cache_dir=str(cache), cache_disk=4 << 30, draft=drafter)
    seconds: dict[str, list[float]] = {}
    with splashpy.load(model, options=options) as loaded:
        talk = [{"role": "user", "content": text_of(loaded, tokens)}]
        cold = ask(loaded, talk)
        seconds["cold"] = [cold["wall"]]
        repeats = [ask(loaded, talk) for _ in range(rounds)]
        turns = []
        for number in range(rounds):
            answer = {"role": "assistant", "content": cold["text"]}
            told = {"role": "user", "content": f"Fine. And what is number {number}?"}
            talk = [*talk, answer, told]
            turns.append(ask(loaded, talk))
        sleep(_PAUSE_SECONDS)
    restarts = []
    for _ in range(max(rounds - 1, 1)):
        with splashpy.load(model, options=options) as loaded:
            restarts.append(ask(loaded, talk[:1]))
    arms = {"repeat": repeats, "next_turn": turns, "restart": restarts}
    for name, samples in arms.items():
        seconds[name] = [sample["wall"] for sample in samples]
    ratios = {name: cold["wall"] / median(seconds[name]) for name in arms}
    return {
        "model": model,
        "prompt_tokens": cold["prompt"],
        "cached_tokens": {name: [s["cached"] for s in arms[name]] for name in arms},
        "seconds": seconds,
        "engine_seconds": {n: [s["engine"] for s in arms[n]] for n in arms},
        "ratios": ratios,
        "least": LEAST,
        "holds": {name: ratios[name] >= LEAST[name] for name in arms},
    }


def text_of(model: Model, tokens: int) -> str:
    """A text of about as many tokens."""
    parts = [FACTS.format(17 + i * 7 % 61, i) for i in range(tokens // 8)]
    sample = "".join(parts[:20])
    counted = ask(model, [{"role": "user", "content": sample}])["prompt"]
    return "".join(parts[: tokens * 20 // counted])


def ask(model: Model, talk: list[dict[str, str]]) -> dict[str, Any]:
    """One answer of a few tokens; how long the first took, and where."""
    started, wall, text = perf_counter(), 0.0, ""
    for event in model.events(talk, temperature=0.0, max_tokens=8, ignore_eos=True):
        if isinstance(event, Cycle):
            wall = wall or perf_counter() - started
            text += "".join(piece.text for piece in event.pieces)
        elif isinstance(event, Done):
            return {
                "wall": wall,
                "engine": event.timing.prefill_ms / 1e3,
                "prompt": event.usage.prompt,
                "cached": event.usage.cached,
                "text": text or "Yes.",
            }
    raise AssertionError("a request ends with Done or an error")


def look_up() -> dict[str, float]:
    """Milliseconds for one long prompt, hashing and packing included."""
    cache = PrefixCache()
    prompts = [
        tuple((i * 61 + number) % 150_000 for i in range(LOOKED_UP))
        for number in range(INDEXED)
    ]
    for prompt in prompts:
        lane = LaneKV(1)
        lane.offset = len(prompt)
        cache.insert(prompt, TargetState([lane]))
    wanted = prompts[INDEXED // 2]
    found = cache.look_up(wanted)
    assert found.resumed == LOOKED_UP - 1
    times = [timed(lambda: cache.look_up(wanted)) for _ in range(15)]
    data = pack(wanted).tobytes()
    plain = [timed(lambda: hashlib.blake2b(data).digest()) for _ in range(15)]
    return {
        "ms": 1e3 * min(times),
        "median_ms": 1e3 * median(times),
        "blake2b_ms": 1e3 * min(plain),
        "tokens": LOOKED_UP,
        "blocks": INDEXED * LOOKED_UP // 256,
    }


def timed(work: Any) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


if __name__ == "__main__":
    main()
