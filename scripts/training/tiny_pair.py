# SPDX-License-Identifier: Apache-2.0
"""Train a drafter for a tiny random target for a minute, with the command itself.

The engine's own loop decodes held-out prompts with the untrained drafter and with the
trained one. Fails when that raises the tokens of a pass, the target's own counted, by
less than a half.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import mlx.core as mx
import tiny

PROMPTS = 500
LENGTH = 6
LETTERS = "abcdefghijklmnopqrstuvwxyz "
SHARE = 0.2  # of the layers in what the target says: answers depend on the prompt
GAIN = 0.5

# Products this small only wait for other threads.
ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
ANSWERS = ("--answer-tokens", "24")
DRAFTER = (
    *("--layers", "2", "--features", "0,2,3", "--window", "64"),
    *("--conv-group", "8", "--rank", "8", "--candidates", "6"),
)
TRAINING = ("--learning-rate", "4e-3", "--held-out", "0.1", "--eval-tokens", "24")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument(
        "--minutes", type=float, default=1.0, help="of training [%(default)s]"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        document = measure(Path(place), options.minutes)
    if options.json:
        print(json.dumps(document, indent=2))
    else:
        for name in ("before", "after", "gain", "steps", "prompts"):
            print(f"{name:<8} {document[name]:.4g}")
    return 0 if document["gain"] >= GAIN else 1


def measure(folder: Path, minutes: float) -> dict[str, Any]:
    """Accepted tokens of a pass before and after."""
    target = str(tiny.write_teachable(folder / "target", SHARE))
    questions, texts = folder / "questions.jsonl", str(folder / "texts")
    questions.write_text("".join(map(question, range(PROMPTS))))
    splashpy("train", "data", target, str(questions), "-o", texts, *ANSWERS)
    words = ("train", target, "--data", texts, *DRAFTER, *TRAINING, "-o")
    before = splashpy(*words, str(folder / "before"), "--steps", "0")
    after = splashpy(*words, str(folder / "after"), "--minutes", str(minutes))
    lengths = [each["evaluation"]["accept_len"] for each in (before, after)]
    return {
        "schema": "splashpy.train_tiny/1",
        "minutes": minutes,
        "steps": after["steps"],
        "prompts": after["evaluation"]["prompts"],
        "before": lengths[0],
        "after": lengths[1],
        "gain": lengths[1] - lengths[0],
        "estimate": after["evaluation"]["estimate"],
        "metrics": after["metrics"],
    }


def question(number: int) -> str:
    """A line of JSON with random letters."""
    key = mx.random.key(number)
    drawn: Any = mx.random.randint(0, len(LETTERS), (LENGTH,), key=key).tolist()
    return json.dumps({"prompt": "".join(LETTERS[at] for at in drawn)}) + "\n"


def splashpy(*words: str) -> Any:
    """The document a command prints; its progress goes where ours does."""
    done = subprocess.run(
        [sys.executable, "-m", "splashpy", *words, "--json"],
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
        check=True,
    )
    return json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
