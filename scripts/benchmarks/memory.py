# SPDX-License-Identifier: Apache-2.0
"""Compare the peak memory of ``splashpy run`` with what the plan promises.

The command answers one prompt in a process of its own. Its peak is the most memory that
was resident, or what MLX held at most where that is more (a GPU's buffers are not all
resident). The promise is the weights as loaded, the keys and values of a full context
and a fixed 150 MB for everything else: Python, text, activations.
"""

from __future__ import annotations

import os
import sys
import tempfile
from statistics import median
from typing import Any

import measure

from splashpy.protocol import Memory, Ready
from splashpy.units import format_bytes
from splashpy.wire import event_from_line

ELSE_BYTES = 150_000_000
MOST = 1.15
"""Times the promise."""

PROMPT = "Explain in a few sentences why the sky is blue."
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of ru_maxrss


def main() -> None:
    options = measure.options(__doc__ or "", rounds=1)
    options.add_argument("--model", default="demo", help="[%(default)s]")
    options.add_argument("--max-tokens", type=int, default=128, help="[%(default)s]")
    options.add_argument("--prompt", default=PROMPT, help="what is asked")
    found = options.parse_args()
    words = ["run", found.model, "-p", found.prompt, "--json-stream", "--temp", "0"]
    words += ["--max-tokens", str(found.max_tokens)]
    runs = [one_run(words) for _ in range(found.rounds)]
    parts = runs[0]["parts"]
    promise = sum(parts.values())
    peak = median(run["peak_bytes"] for run in runs)
    document = {
        "schema": "splashpy.bench_memory/1",
        "peak_bytes": peak,
        "promise_bytes": promise,
        "parts": parts,
        "ratios": {"peak_vs_promise": peak / promise, "allowed": MOST},
        "samples": runs,
    }
    rows = [
        ["what", "bytes"],
        *[[name, format_bytes(size)] for name, size in parts.items()],
        ["promise", format_bytes(promise)],
        ["peak", format_bytes(int(peak))],
        ["peak / promise", f"{peak / promise:.2f}"],
    ]
    measure.report(document, rows, as_json=found.json)
    if peak > MOST * promise:
        sys.exit(f"the peak is more than {MOST} times the promise")


def one_run(words: list[str]) -> dict[str, Any]:
    """Run splashpy once; its peak, and the parts of the promise."""
    with tempfile.TemporaryFile() as out:
        command = [sys.executable, "-m", "splashpy", *words]
        process = os.posix_spawn(
            sys.executable,
            command,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1)],
        )
        _, status, usage = os.wait4(process, 0)
        if os.waitstatus_to_exitcode(status):
            sys.exit(f"{' '.join(command)} failed")
        out.seek(0)
        events = [event_from_line(line) for line in out]
    ready = next(event for event in events if isinstance(event, Ready))
    inside = [event.peak for event in events if isinstance(event, Memory)]
    resident = usage.ru_maxrss * _RSS_UNIT
    plan = ready.memory
    return {
        "peak_bytes": max(resident, *inside),
        "resident_bytes": resident,
        "mlx_bytes": max(inside, default=0),
        "parts": {
            "weights": plan.weights,
            "draft": plan.draft,
            "keys and values": ready.context_max * plan.kv_per_token,
            "everything else": ELSE_BYTES,
        },
    }


if __name__ == "__main__":
    main()
