# SPDX-License-Identifier: Apache-2.0
"""``splashpy verify``: prove that speculation changes nothing, or check files."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import click

from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON, ENGINE
from splashpy.cli.page import Page, PageCommand
from splashpy.cli.prompt import read_text
from splashpy.cli.signals import Interrupts
from splashpy.cli.verdict import Evidence, describe, shorten
from splashpy.errors import TerminalError, UsageError
from splashpy.units import format_bytes

if TYPE_CHECKING:
    from splashpy.bench.distribution import SamplingTest
    from splashpy.bench.lossless import Comparison
    from splashpy.bench.session import Draw, Session
    from splashpy.package.library import InstalledModel

PROMPTS = 12
TOKENS = 256
TEMPERATURE = 1.0
RACE_COLUMNS = 100  # two texts side by side need this much

_EXCLUSIVE = (
    ("files", "race", "--files loads no model"),
    ("files", "sampling_test", "--files loads no model"),
    ("files", "prompts", "--files loads no model"),
    ("files", "seeds", "--files loads no model"),
    ("race", "json", "it is a picture or one document"),
)


def verify(invocation: Invocation) -> int:
    """Compare decoding with drafts and without; returns the exit code.

    Raises:
        LosslessError: a text or a distribution differs.
        SplashError: usage, model or file errors.
        KeyboardInterrupt: somebody asked to stop.
    """
    from splashpy.cli.resolve import find_or_build
    from splashpy.package.progress import CancelledError

    given = invocation.given
    _check_options(invocation)
    with Interrupts(invocation.output.err) as interrupts:
        if given["files"]:
            found = find_or_build(invocation, given["model"], interrupts)
            try:
                return _check_files(invocation, found, interrupts)
            except CancelledError:
                raise KeyboardInterrupt(interrupts.exit_code) from None
        texts = _prompts(given["prompts"])[: given["number"] or PROMPTS]
        found = find_or_build(invocation, given["model"], interrupts)
        session = _open(invocation, found, interrupts)
        if given["race"]:
            _race(invocation, session, texts[0], interrupts)
        return _prove(invocation, found, session, texts, interrupts)


def _check_options(invocation: Invocation) -> None:
    """Find what cannot work before a model is loaded for it.

    Raises:
        UsageError: options that do not go together, or leave nothing to compare.
        TerminalError: --race where two texts do not fit.
    """
    given, output = invocation.given, invocation.output
    if given["full"] and not given["files"]:
        raise UsageError("--full goes with --files")
    invocation.refuse_pairs(_EXCLUSIVE)
    if given["block_size"] == 1:
        raise UsageError(
            "--block-size 1 leaves no drafts to compare with",
            why="the only token of such a pass is the target's own",
            fix=["--block-size 2 or more, or leave it out"],
        )
    if given["temp"] is not None and not given["seeds"]:
        raise UsageError(
            "--temp goes with --seeds",
            why="a text without a seed is greedy",
            fix=["--seeds 1 or more"],
        )
    if given["temp"] == 0:
        raise UsageError(
            "--temp 0 leaves nothing to a seed",
            why="that is greedy decoding, which is compared in any case",
        )
    narrow = not output.out.terminal or output.columns < RACE_COLUMNS
    if given["race"] and narrow:
        raise TerminalError(
            f"--race needs a terminal of {RACE_COLUMNS} columns",
            why=f"this one has {output.columns}" if output.out.terminal else "",
            fix=["leave --race out: the same texts are compared one after the other"],
        )


def _prove(
    invocation: Invocation,
    found: InstalledModel,
    session: Session,
    texts: list[str],
    interrupts: Interrupts,
) -> int:
    """Compare, tell, judge.

    Raises:
        LosslessError: a mismatch, a tie with ``--ties strict``, or a wrong
            distribution.
        UsageError: nothing was drafted, so nothing is proved.
    """
    given, output = invocation.given, invocation.output
    from splashpy.bench.session import GREEDY, Draw

    temperature = TEMPERATURE if given["temp"] is None else given["temp"]
    seeds = range(1, (given["seeds"] or 0) + 1)
    draws = [Draw(temperature=temperature, seed=seed) for seed in seeds]
    comparisons = _compare(invocation, session, texts, [GREEDY], interrupts)
    seeded = _compare(invocation, session, texts, draws, interrupts)
    sampled = None
    if given["sampling_test"]:
        sampled = _sampling(invocation, session, texts[0], interrupts)
    evidence = Evidence(
        model=found.name,
        draft=asdict(session.loaded.draft),
        texts=texts,
        comparisons=comparisons,
        seeded=seeded,
        kv=session.target.facts.kv,
        sampled=sampled,
        strict=given["ties"] == "strict",
    )
    fault = evidence.fault()
    if output.json:
        output.document("verify", evidence.fields())
        return fault.exit_code if fault else 0
    if not isinstance(fault, UsageError):  # what proves nothing is no result
        for line in evidence.lines():
            output.result(line)
    if fault:
        raise fault
    return 0


def _compare(
    invocation: Invocation,
    session: Session,
    texts: list[str],
    draws: list[Draw],
    interrupts: Interrupts,
) -> list[Comparison]:
    """Every draw of every prompt, told as it is found."""
    from splashpy.bench.lossless import compare

    comparisons: list[Comparison] = []
    decode = session.speech.tokenizer.decode
    for (number, text), draw in product(enumerate(texts, 1), draws):
        comparison = compare(
            session,
            session.prompt_ids(text),
            max_tokens=invocation.given["max_tokens"] or TOKENS,
            draw=draw,
            cancelled=lambda: interrupts.requested,
        )
        interrupts.check()
        comparisons.append(comparison)
        line = f"{number:>3}  {describe(comparison, decode)}  {shorten(text)}"
        invocation.output.note(line)
    return comparisons


def _open(
    invocation: Invocation, found: InstalledModel, interrupts: Interrupts
) -> Session:
    from splashpy.bench.session import Session
    from splashpy.package.model_directory import ModelDirectory

    # Lookup drafts at every match here: whether that is fast does not matter.
    lookup = not invocation.given["no_lookup"]
    options = replace(invocation.load_options(), lookup=lookup)
    progress = invocation.progress()
    try:
        session = Session.open(
            ModelDirectory.open(found.path),
            options,
            interrupts.checked(progress.update),
        )
    finally:
        progress.close()
    draft = session.loaded.draft
    if draft.state == "off":
        raise UsageError(
            "there are no drafts to compare with",
            why=f"drafting is off: {draft.reason}",
            fix=["leave --no-lookup out, or name a drafter with --draft DIR|REPO"],
        )
    return session


def _prompts(source: str | None) -> list[str]:
    """The quick suite, or one prompt a line of a file.

    Raises:
        InputFileError: the file cannot be read.
        UsageError: it has no prompt.
    """
    if source in (None, "quick"):
        from splashpy.bench.prompts import QUICK

        return [prompt.text for prompt in QUICK]
    texts = [line for line in read_text(source).splitlines() if line.strip()]
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
    elif directory.kind == "splash":
        files = _check_splash(invocation, directory.path, interrupts, full=full)
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


def _check_splash(
    invocation: Invocation, path: Path, interrupts: Interrupts, *, full: bool
) -> int:
    """Hash the files of a Splash package where asked; returns how many it lists."""
    from splashpy.package.splash.package import SplashPackage

    package = SplashPackage.open(path)
    if full:
        progress = invocation.progress()
        try:
            package.check_digests(progress.update, lambda: interrupts.requested)
        finally:
            progress.close()
    return len(package.manifest.files)


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
                "splashpy verify demo --seeds 2",
                "also two seeded texts of each prompt, at temperature 1",
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
            "The same seed gives the same text with drafts and without.",
            "Drafts by lookup are made at every match, whether or not that is fast.",
            "Exit codes: 0 identical or ties; 5 when a text or a distribution differs;",
            "2 when not one token was drafted, since that proves nothing. With --json",
            "the document says in its field error what is wrong.",
        ),
        defaults={"max_tokens": str(TOKENS), "lookup": "always", "temp": "1"},
    ),
    arguments=(click.Argument(["model"], required=False, metavar="[MODEL]"),),
    options=(
        "prompts",
        "number",
        "seeds",
        "temp",
        "max_tokens",
        "race",
        "sampling_test",
        "ties",
        "files",
        "full",
        *(name for name in ENGINE if name != "no_draft"),
        *COMMON,
    ),
    run=verify,
)
