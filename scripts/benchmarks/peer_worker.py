# SPDX-License-Identifier: Apache-2.0
"""One program of the comparison, in a process of its own.

Reads questions and writes answers, a JSON object a line::

    {"ids": [...], "tokens": 96}          -> {"ids": [...], "seconds": [...]}
    {"ids": [...], "plain": [...],
     "other": [...]}                      -> {"outcome": "identical"}

``seconds`` are the moments at which the tokens arrived. The second form asks splashpy
why two texts differ.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from peer_programs import PROGRAMS, Pair

from splashpy.bench.lossless import explain


def main() -> None:
    name, model, draft = sys.argv[1:]
    # Programs print; the answers have a stream of their own.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    pair = Pair.open(model, draft or None)
    try:
        for reply in serve(name, pair):
            print(json.dumps(reply), file=answers, flush=True)
    except Exception as error:  # noqa: BLE001 - another program's; told to the parent
        reason = f"{type(error).__name__}: {error}"
        print(json.dumps({"error": reason}), file=answers, flush=True)


def serve(name: str, pair: Pair) -> Iterator[dict[str, Any]]:
    """Answers to the lines of stdin, after one that says it is ready."""
    decode = PROGRAMS[name](pair)
    yield {"ready": name}
    for line in sys.stdin:
        asked = json.loads(line)
        if "plain" in asked:
            ids = tuple(asked["ids"])
            found = explain(pair.session(), ids, asked["plain"], asked["other"])
            yield {"outcome": found.outcome}
            continue
        written: list[int] = []
        seconds: list[float] = []
        for tokens, at in decode(asked["ids"], asked["tokens"]):
            written += tokens
            seconds += [at] * len(tokens)
        most = asked["tokens"]
        yield {"ids": written[:most], "seconds": seconds[:most]}


if __name__ == "__main__":
    main()
