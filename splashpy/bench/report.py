# SPDX-License-Identifier: Apache-2.0
"""A document of ``splashpy.bench/1`` in words: a line, a table, a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from splashpy.units import format_bytes

HEADS = (
    "suite",
    "arm",
    "tok/s",
    "with prompt",
    "first token p50",
    "p95",
    "prompt tok/s",
    "τ",
    "host/cycle",
    "tokens",
    "peak",
)
"""Columns of the table of arms."""

DEFINITIONS = (
    "tok/s: answer tokens after the first over the time between the first and the "
    "last; with prompt: all answer tokens over all the time. τ, the acceptance "
    "length, is the tokens a pass of the target produced, its own token counted: 1 is "
    "plain decoding. host/cycle: processor time of the engine's thread for one pass. "
    "A speed-up is tok/s with drafts over tok/s without, of answers that followed "
    "each other; a prompt's is the median over its repeats, that of all prompts their "
    "geometric mean."
)


def rows(document: Mapping[str, Any]) -> list[list[str]]:
    """The table of arms."""
    return [
        [suite, arm, *_figures(figures)]
        for suite, found in document["suites"].items()
        for arm, figures in found["arms"].items()
    ]


def speedup_lines(document: Mapping[str, Any]) -> list[str]:
    """The speed-up of everything, then of each suite where there are several."""
    lines = []
    suites = document["suites"].items()
    if document["speedup"]:
        lines.append(f"speed-up {_speedup(document['speedup'])}")
    if len(suites) > 1:
        lines += [
            f"  {name}: {_speedup(found['speedup'])}"
            for name, found in suites
            if found["speedup"]
        ]
    return lines


def concurrency_lines(document: Mapping[str, Any]) -> list[str]:
    """What people who asked at the same time got; nothing where nobody did."""
    return [
        f"{row['arm']}: {_number(row['aggregate_tok_s'])} tok/s together, "
        f"{_number(row['request_tok_s'])} each; first token "
        f"{_number(row['ttft_ms']['p50'], 0)} ms, 95 % within "
        f"{_number(row['ttft_ms']['p95'], 0)} ms; {row['requests']} answers"
        for row in document["concurrency"]
    ]


def texts_line(document: Mapping[str, Any]) -> str:
    """What became of the texts; empty where none were compared."""
    texts = document["texts"]
    if not texts["compared"]:
        return ""
    same = texts["compared"] - texts["near_ties"] - texts["mismatches"]
    return (
        f"texts: {same} of {texts['compared']} as plain decoding writes them, "
        f"{texts['near_ties']} differ after a tie within rounding, "
        f"{texts['mismatches']} otherwise"
    )


def markdown(document: Mapping[str, Any], *, plots: Sequence[str] = ()) -> str:
    """``report.md``.

    Args:
        document: what was measured.
        plots: file names of the drawings beside it.
    """
    settings = document["settings"]
    parts = [f"# splashpy bench {settings['model']}"]
    if not document["complete"]:
        parts.append("The run was stopped before its end; this is what there is.")
    parts += speedup_lines(document)
    if line := texts_line(document):
        parts.append(line)
    parts += concurrency_lines(document)
    parts.append(_table(HEADS, rows(document)))
    parts += [f"![{name.removesuffix('.svg')}]({name})" for name in plots]
    prompts = [_prompt_row(row) for row in document["prompts"]]
    heads = ("prompt", "kind", "tokens", "speed-up", "95 % interval", "τ")
    parts += ["## Prompts", _table(heads, prompts)]
    parts += ["## Acceptance", _acceptance(document)]
    parts += ["## Settings", _pairs(settings), "## Machine"]
    parts += [_pairs(document["environment"]), DEFINITIONS]
    return "\n\n".join(parts) + "\n"


def committed(document: Mapping[str, Any]) -> list[int]:
    """committed[n - 1] passes with drafts on committed n tokens, over all suites."""
    counts: list[int] = []
    for suite in document["suites"].values():
        for n, count in enumerate(suite["arms"].get("draft", {}).get("committed", [])):
            counts += [0] * (n + 1 - len(counts))
            counts[n] += count
    return counts


def _figures(figures: Mapping[str, Any]) -> list[str]:
    return [
        _number(figures["decode_tok_s"]),
        _number(figures["end_to_end_tok_s"]),
        f"{_number(figures['ttft_ms']['p50'], 0)} ms",
        f"{_number(figures['ttft_ms']['p95'], 0)} ms",
        _number(figures["prefill_tok_s"], 0),
        _number(figures["tau"], 2),
        f"{_number(figures['host_ms_per_cycle'], 2)} ms",
        str(figures["output_tokens"]),
        format_bytes(figures["peak_bytes"]) if figures["peak_bytes"] else "-",
    ]


def _speedup(found: Mapping[str, Any]) -> str:
    spread = found["spread"]
    repeats = "one repeat" if spread is None else f"repeats differ by {spread:.1%}"
    doubt = " (inconclusive)" if found["inconclusive"] else ""
    return (
        f"{found['geomean']:.2f} (95 %: {found['low']:.2f} to {found['high']:.2f}); "
        f"worst prompt {found['worst']:.2f} ({found['worst_low']:.2f} to "
        f"{found['worst_high']:.2f}), {found['worst_prompt']}; "
        f"{found['prompts']} prompts, {found['pairs']} pairs, {repeats}{doubt}"
    )


def _prompt_row(row: Mapping[str, Any]) -> list[str]:
    ratio = row["ratio"]
    return [
        row["prompt"],
        row["kind"],
        str(row["tokens"]),
        _number(ratio, 2),
        f"{row['low']:.2f} to {row['high']:.2f}" if ratio else "-",
        _number(row["tau"], 2),
    ]


def _acceptance(document: Mapping[str, Any]) -> str:
    counts = committed(document)
    total = sum(counts)
    if not total:
        return "Nothing was drafted."
    rows = [
        [str(n), str(count), f"{count / total:.1%}"]
        for n, count in enumerate(counts, 1)
    ]
    return _table(("tokens a pass committed", "passes", "share"), rows)


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _pairs(found: Mapping[str, Any]) -> str:
    return _table(("", ""), [[name, _text(value)] for name, value in found.items()])


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return "-" if value is None else str(value)


def _table(heads: Sequence[str], found: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *found]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
