# SPDX-License-Identifier: Apache-2.0
"""Measure what HTTP costs: ``splashpy serve`` against ``splashpy run``'s engine here.

Both arms answer the same prompt of the demo model, greedily. The decode rate over HTTP
is the client's: the tokens after those that came first, by the time between the first
text and the chunk that ends the answer. The overhead of the first token is the time
from sending the request to its first text, less what the engine took from accepting the
request to its first token; so it holds the way of the request as well.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import measure

import splashpy
from splashpy.protocol import LoadOptions

PROMPT = "Write a short story about a fox and a river."
TOKENS = 120


def main() -> None:
    parser = measure.options(__doc__ or "", rounds=5)
    parser.add_argument("--draft", help="directory of another drafter than the demo's")
    options = parser.parse_args()
    wishes = LoadOptions(prefix_cache=False, draft=options.draft)
    with (
        Served(options.draft) as served,
        splashpy.load("demo", options=wishes) as model,
    ):

        def run() -> dict[str, float]:
            reply = model.generate(PROMPT, temperature=0.0, max_tokens=TOKENS)
            tokens = reply.usage.completion - reply.timing.first_emission_tokens
            return {"decode": 1e3 * tokens / reply.timing.decode_ms}

        arms = {"http": served.stream, "run": run}
        samples = measure.interleave(arms, options.rounds)
    rates = {name: measure.summary(s, "decode") for name, s in samples.items()}
    overhead = measure.summary(samples["http"], "overhead_ms")
    ratio = rates["http"]["median"] / rates["run"]["median"]
    document = {
        "schema": "splashpy.bench_http/1",
        "prompt": PROMPT,
        "max_tokens": TOKENS,
        "tok_s": rates,
        "ratios": {"stream_vs_run": ratio},
        "first_token_overhead_ms": overhead["median"],
        "samples": samples,
    }
    rows = [
        ["arm", "decode tok/s", "spread"],
        *[measure.row(name, figure, "") for name, figure in rates.items()],
        ["stream_vs_run", f"{ratio:.2f}", ""],
        ["first token, over HTTP", f"+{overhead['median']:.1f} ms", ""],
    ]
    measure.report(document, rows, as_json=options.json)


class Served:
    """``splashpy serve demo`` at a free port.

    Args:
        draft: directory of another drafter than the demo's.
    """

    def __init__(self, draft: str | None):
        words = ["serve", "demo", "--port", "0", "--json", "--no-prefix-cache"]
        words += ["--draft", draft] if draft else []
        self._words = [sys.executable, "-m", "splashpy", *words]

    def __enter__(self) -> Served:
        self._process = subprocess.Popen(self._words, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._address = urlsplit(json.loads(self._process.stdout.readline())["url"])
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def stream(self) -> dict[str, float]:
        """One streamed answer."""
        body = {
            "messages": [{"role": "user", "content": PROMPT}],
            "temperature": 0,
            "max_tokens": TOKENS,
            "stream": True,
        }
        start = time.perf_counter()
        first = last = 0.0
        final: dict[str, Any] = {}
        for at, chunk in self._chunks(body):
            choice = chunk["choices"][0] if chunk["choices"] else {"delta": {}}
            if choice["delta"].get("content"):
                first = first or at
            if choice.get("finish_reason"):
                last = at
            final = chunk if "timings" in chunk else final
        # Reading the prompt gives one token; every pass after it gives more.
        later = final["timings"]["predicted_n"] - 1
        return {
            "decode": later / (last - first),
            "overhead_ms": 1e3 * (first - start) - final["splashpy"]["ttft_ms"],
        }

    def _chunks(self, body: dict[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
        address = self._address
        connection = http.client.HTTPConnection(address.hostname or "", address.port)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                yield time.perf_counter(), json.loads(line.removeprefix(b"data: "))
        connection.close()


if __name__ == "__main__":
    main()
