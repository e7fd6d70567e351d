# SPDX-License-Identifier: Apache-2.0
"""Compare splashpy's loop without drafts with mlx-lm's on the same weights.

Prefill runs with taps on five layers, as a drafter needs them. Both arms turn every
token into text. mlx-lm's rates are those ``stream_generate`` reports; ours are counted
the same way: prompt tokens over the time to the first token, and tokens after the first
over the time between the first and the last.
"""

from __future__ import annotations

import itertools
from time import perf_counter

import measure
import mlx.core as mx
from mlx_lm.generate import stream_generate
from mlx_lm.tokenizer_utils import load as load_tokenizer

from splashpy.dialogue.detokenizer import StreamDetokenizer
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine.generation import generate
from splashpy.engine.request import GenerationRequest, TokensCommitted
from splashpy.models.loading import load_target
from splashpy.models.target import MlxLmTarget, check_taps
from splashpy.package.library import Library
from splashpy.package.model_directory import ModelDirectory
from splashpy.packing.pull import pull
from splashpy.paths import Paths
from splashpy.verification.sampling import SamplingParams

PROMPT_TOKENS = 512
ANSWER_TOKENS = 48
FEATURE_LAYERS = (1, 8, 15, 22, 28)


def main() -> None:
    options = measure.arguments(__doc__ or "", rounds=5)
    directory = demo()
    target = load_target(
        directory.target, directory.config, directory.context_max, lambda *_: None
    )
    arms = {
        "splashpy": splashpy_arm(target, directory),
        "mlx-lm": mlx_lm_arm(target, directory),
    }
    samples = measure.interleave(arms, options.rounds)
    rates = {
        name: {key: measure.summary(taken, key) for key in ("prefill", "decode")}
        for name, taken in samples.items()
    }
    ratios = {
        f"{key}_vs_mlx_lm": rates["splashpy"][key]["median"]
        / rates["mlx-lm"][key]["median"]
        for key in ("prefill", "decode")
    }
    document = {
        "schema": "splashpy.bench_loop/1",
        "prompt_tokens": PROMPT_TOKENS,
        "answer_tokens": ANSWER_TOKENS,
        "tok_s": rates,
        "ratios": ratios,
        "samples": samples,
    }
    rows = [["arm", "tok/s", "spread"]]
    for name, figures in rates.items():
        rows += [measure.row(f"{name} {key}", f, "") for key, f in figures.items()]
    rows += [[key, f"{value:.3f}", ""] for key, value in ratios.items()]
    measure.report(document, rows, as_json=options.json)


def demo() -> ModelDirectory:
    paths = Paths.default()
    pull("demo", paths)
    return ModelDirectory.open(Library(paths).find("demo").path)


def prompts() -> itertools.count:
    """Prompts of one length that share no beginning."""
    return itertools.count(1)


def prompt(number: int) -> tuple[int, ...]:
    return tuple(
        (i * 7919 + number * 104729) % 40_000 + 100 for i in range(PROMPT_TOKENS)
    )


def splashpy_arm(target: MlxLmTarget, directory: ModelDirectory):
    tokenizer = Tokenizer.from_directory(directory.tokenizer, config=directory.config)
    numbers = prompts()

    def run() -> dict[str, float]:
        reason = check_taps(target, FEATURE_LAYERS)
        assert not reason, reason
        request = GenerationRequest(
            id="bench",
            token_ids=prompt(next(numbers)),
            sampling=SamplingParams(),
            seed=0,
            max_new_tokens=ANSWER_TOKENS,
        )
        text, times = StreamDetokenizer(tokenizer), []
        started = perf_counter()
        for event in generate(
            request, target, PlainDrafter(), None, cancelled=lambda: False
        ):
            if isinstance(event, TokensCommitted):
                times.append(event.at)
                text.add(event.token_ids[0])
        target.tap(())
        return rates(started, times)

    return run


def mlx_lm_arm(target: MlxLmTarget, directory: ModelDirectory):
    tokenizer = load_tokenizer(directory.tokenizer)
    tokenizer.eos_token_ids = set()  # both arms write the same number of tokens
    numbers = prompts()

    def run() -> dict[str, float]:
        *_, last = stream_generate(
            target._model,
            tokenizer,
            mx.array(prompt(next(numbers))),
            max_tokens=ANSWER_TOKENS,
        )
        return {"prefill": last.prompt_tps, "decode": last.generation_tps}

    return run


def rates(started: float, times: list[float]) -> dict[str, float]:
    return {
        "prefill": PROMPT_TOKENS / (times[0] - started),
        "decode": (len(times) - 1) / (times[-1] - times[0]),
    }


if __name__ == "__main__":
    main()
