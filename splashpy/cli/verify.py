# SPDX-License-Identifier: Apache-2.0
"""``splashpy verify``: prove that speculation changes nothing, or check files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON, ENGINE
from splashpy.cli.page import Page, PageCommand
from splashpy.cli.signals import Interrupts
from splashpy.errors import LosslessError, TerminalError, UsageError
from splashpy.units import format_bytes

if TYPE_CHECKING:
    from splashpy.bench.distribution import SamplingTest
    from splashpy.bench.lossless import Comparison
    from splashpy.bench.session import Session
    from splashpy.package.library import InstalledModel

PROMPTS = 12
TOKENS = 256
RACE_COLUMNS = 100  # two texts side by side need this much


def verify(invocation: Invocation) -> int:
    """Compare decoding with drafts and without; returns the exit code.

    Raises:
        LosslessError: a text or a distribution differs.
        SplashError: usage, model or file errors.
        KeyboardInterrupt: somebody asked to stop.
    """
    from splashpy.cli.resolve import find_or_build

    given = invocation.given
    if given["full"] and not given["files"]:
        raise UsageError("--full goes with --files")
    with Interrupts(invocation.output.err) as interrupts:
        found = find_or_build(invocation, given["model"], interrupts)
        if given["files"]:
            return _check_files(invocation, found, interrupts)
        texts = _prompts(given["prompts"])[: given["number"] or PROMPTS]
        session = _open(invocation, found)
        if given["race"]:
            _race(invocation, session, texts[0], interrupts)
        return _prove(invocation, found, session, texts, interrupts)


def _prove(
    invocation: Invocation,
    found: InstalledModel,
    session: Session,
    texts: list[str],
    interrupts: Interrupts,
) -> int:
    from splashpy.bench.lossless import compare

    comparisons: list[Comparison] = []
    tokens = invocation.given["max_tokens"] or TOKENS
    for number, text in enumerate(texts, 1):
        token_ids = session.prompt_ids(text)
        comparison = compare(
            session,
            token_ids,
            max_tokens=tokens,
            cancelled=lambda: interrupts.requested,
        )
        interrupts.check()
        comparisons.append(comparison)
        line = f"{number:>3}  {describe(comparison, session)}  {shorten(text)}"
        invocation.output.note(line)
    sampled = None
    if invocation.given["sampling_test"]:
        sampled = _sampling(invocation, session, texts[0], interrupts)
    _report(invocation, found, session, (texts, comparisons), sampled)
    return _judge(invocation, comparisons, sampled)


def _report(
    invocation: Invocation,
    found: InstalledModel,
    session: Session,
    compared: tuple[list[str], list[Comparison]],
    sampled: SamplingTest | None,
) -> None:
    texts, comparisons = compared
    if invocation.output.json:
        rows = [
            {"prompt": text, **asdict(comparison)}
            for text, comparison in zip(texts, comparisons, strict=True)
        ]
        fields: dict[str, Any] = {
            "model": found.name,
            "draft": asdict(session.loaded.draft),
            "prompts": rows,
            **{
                outcome: sum(c.outcome == outcome for c in comparisons)
                for outcome in ("identical", "tie", "mismatch")
            },
            "sampling": sampled and {**asdict(sampled), "passed": sampled.passed},
        }
        invocation.output.document("verify", fields)
        return
    invocation.output.result(summary(comparisons))
    if sampled:
        invocation.output.result(
            f"sampling: {sampled.draws} draws of one token in {sampled.bins} bins, "
            f"p = {sampled.p_drafted:.3f} with drafts, {sampled.p_plain:.3f} without "
            f"({sampled.accepted} of {sampled.drafted} drafts kept)"
        )


def _judge(
    invocation: Invocation, comparisons: list[Comparison], sampled: SamplingTest | None
) -> int:
    """0, or the error that says what differs.

    Raises:
        LosslessError: a mismatch, a tie with ``--ties strict``, or a wrong
            distribution.
    """
    strict = invocation.given["ties"] == "strict"
    bad = ("mismatch", "tie") if strict else ("mismatch",)
    wrong = [c for c in comparisons if c.outcome in bad]
    if wrong:
        first = wrong[0]
        raise LosslessError(
            f"speculation changed {len(wrong)} of {len(comparisons)} texts",
            why=f"first at token {first.at}: {first.plain_token} plain, "
            f"{first.drafted_token} drafted, gap {first.gap:.3g} "
            f"(tie up to {first.tolerance:.3g})",
            fix=["--no-draft decodes without drafts"],
        )
    if sampled and not sampled.passed:
        raise LosslessError(
            "sampling with drafts does not follow the target's distribution",
            why=f"p = {sampled.p_drafted:.2g} with drafts, {sampled.p_plain:.2g} "
            "without; below 0.001 is no chance",
            fix=["--no-draft decodes without drafts"],
        )
    return 0


def describe(comparison: Comparison, session: Session) -> str:
    """One comparison in a few words, its first difference spelled out."""
    if comparison.outcome == "identical":
        return f"identical ({comparison.tokens} tokens)"
    words = [
        repr(session.speech.tokenizer.decode([token])) if token >= 0 else "the end"
        for token in (comparison.plain_token, comparison.drafted_token)
    ]
    return (
        f"{comparison.outcome} at token {comparison.at}: {words[0]} plain, "
        f"{words[1]} drafted, gap {comparison.gap:.3g}"
    )


def summary(comparisons: list[Comparison]) -> str:
    """``12 prompts: 11 identical, 1 tie at token 173 (gap 0.06)``."""
    parts = []
    for outcome in ("identical", "tie", "mismatch"):
        of_kind = [c for c in comparisons if c.outcome == outcome]
        if not of_kind and outcome != "identical":
            continue
        part = f"{len(of_kind)} {outcome}"
        if outcome != "identical":
            part += f" at token {of_kind[0].at} (gap {of_kind[0].gap:.3g})"
        parts.append(part)
    plural = "" if len(comparisons) == 1 else "s"
    return f"{len(comparisons)} prompt{plural}: {', '.join(parts)}"


def shorten(text: str, width: int = 48) -> str:
    """The beginning of a prompt on one line."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def _open(invocation: Invocation, found: InstalledModel) -> Session:
    from splashpy.bench.session import Session
    from splashpy.package.model_directory import ModelDirectory

    progress = invocation.progress()
    try:
        session = Session.open(
            ModelDirectory.open(found.path), invocation.load_options(), progress.update
        )
    finally:
        progress.close()
    draft = session.loaded.draft
    if draft.state == "off":
        raise UsageError(
            "there are no drafts to compare with",
            why=f"drafting is off: {draft.reason}",
        )
    return session


def _prompts(source: str | None) -> list[str]:
    """The quick suite, or one prompt a line of a file.

    Raises:
        UsageError: the file has no prompt or cannot be read.
    """
    if source in (None, "quick"):
        from splashpy.bench.prompts import QUICK

        return [prompt.text for prompt in QUICK]
    try:
        lines = Path(source).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--prompts {source}: {error}") from None
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise UsageError(f"--prompts {source}: no line holds a prompt")
    return texts


def _sampling(
    invocation: Invocation, session: Session, text: str, interrupts: Interrupts
) -> SamplingTest:
    from splashpy.bench.distribution import sampling_test
    from splashpy.verification.sampling import SamplingParams

    progress = invocation.progress()

    def draw(done: int, total: int) -> None:
        interrupts.check()
        progress.draws(done, total)

    try:
        return sampling_test(
            session,
            session.echo_ids(text),
            sampling=SamplingParams(temperature=1.0, top_k=50),
            progress=draw,
        )
    finally:
        progress.close()


def _race(
    invocation: Invocation, session: Session, text: str, interrupts: Interrupts
) -> None:
    from splashpy.bench.race import race
    from splashpy.cli.race import Lanes

    output = invocation.output
    if not output.out.terminal or output.columns < RACE_COLUMNS:
        raise TerminalError(
            f"--race needs a terminal of {RACE_COLUMNS} columns",
            why=f"this one has {output.columns}" if output.out.terminal else "",
            fix=["leave --race out: the same texts are compared one after the other"],
        )
    lanes = Lanes(output.out, output.columns)
    tokens = invocation.given["max_tokens"] or TOKENS
    for runners in race(
        session,
        session.prompt_ids(text),
        max_tokens=tokens,
        cancelled=lambda: interrupts.requested,
    ):
        lanes.show(*runners)
    interrupts.check()


def _check_files(
    invocation: Invocation, found: InstalledModel, interrupts: Interrupts
) -> int:
    from splashpy.package.integrity import check_files
    from splashpy.package.model_directory import ModelDirectory

    full = invocation.given["full"]
    directory = ModelDirectory.open(found.path)  # sizes and headers
    files = 0
    if directory.manifest is not None:
        progress = invocation.progress()
        try:
            check_files(
                directory.path,
                directory.manifest,
                full=full,
                progress=progress.update,
                cancelled=lambda: interrupts.requested,
            )
        finally:
            progress.close()
        files = len(directory.manifest.files)
    elif full:
        raise UsageError(
            f"{found.name} has no recorded digests",
            why="only a splashpy package lists its files with their SHA-256",
        )
    if invocation.output.json:
        fields = {"model": found.name, "path": str(found.path), "files": files}
        invocation.output.document("verify", {**fields, "full": full, "passed": True})
        return 0
    checked = "sizes and digests" if full else "sizes and headers"
    size = format_bytes(directory.size_bytes)
    invocation.output.result(f"{found.name}: {checked} are right ({size})")
    return 0


VERIFY = PageCommand(
    "verify",
    page=Page(
        usage="[MODEL]",
        summary="Prove that drafts do not change the text, or check the files.",
        examples=(
            (
                "splashpy verify demo",
                "twelve prompts decoded with drafts and without, token by token",
            ),
            (
                "splashpy verify demo --sampling-test",
                "also draw a token 2,000 times each way and compare the counts",
            ),
            ("splashpy verify demo --files --full", "hash every file of the package"),
        ),
        notes=(
            "A pass of several rows rounds differently from one row, so two tokens",
            "that are practically tied may swap; that is told as a tie, with its gap.",
            "Exit codes: 0 identical or ties; 5 when a text or a distribution differs.",
        ),
    ),
    arguments=(click.Argument(["model"], required=False, metavar="[MODEL]"),),
    options=(
        "prompts",
        "number",
        "max_tokens",
        "race",
        "sampling_test",
        "ties",
        "files",
        "full",
        *ENGINE,
        *COMMON,
    ),
    run=verify,
)
