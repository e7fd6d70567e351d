# SPDX-License-Identifier: Apache-2.0
"""What ``splashpy bench`` is to measure, and which questions that means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splashpy.cli.bench_options import ARMS, SUITES
from splashpy.cli.invocation import Invocation
from splashpy.errors import IntegrityError, UsageError
from splashpy.units import format_tokens

if TYPE_CHECKING:
    from splashpy.bench.session import Draw, Session
    from splashpy.bench.suites import Question

TRIALS = 3
TOKENS = 128
HUB_QUESTIONS = 20  # of a suite with hundreds, where nobody says how many
GPU_COOLDOWN = 10.0
MAX_REGRESSION = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The wishes about a measurement.

    Attributes:
        suites: names, in their order.
        number: questions of each suite; None for the usual number.
        arms: in the order asked for.
        trials: of each question.
        max_tokens: of each answer.
        contexts: prompt lengths that were asked for; None for the usual ones.
        sampling: values that were asked for; empty decodes greedily.
        cooldown: seconds between answers; None for the usual.
        url: of an endpoint to be measured; empty measures an engine here.
        people: how many ask at once, of every round.
        out: directory for everything; None keeps nothing.
        compare: the earlier document; None compares nothing.
        max_regression: fraction a figure may lose.
    """

    suites: tuple[str, ...]
    number: int | None
    arms: tuple[str, ...]
    trials: int
    max_tokens: int
    contexts: tuple[int, ...] | None
    sampling: Mapping[str, Any]
    cooldown: float | None
    out: Path | None
    compare: Mapping[str, Any] | None
    max_regression: float = field(default=MAX_REGRESSION)
    url: str = ""
    people: tuple[int, ...] = (1,)

    @classmethod
    def of(cls, invocation: Invocation) -> Settings:
        """Read and check everything that needs no model.

        Raises:
            UsageError: options that do not go together.
            InputFileError: the file of --compare cannot be read.
        """
        given = invocation.given
        suite = given["suite"] or "quick"
        if given["plot"] and not given["out"]:
            raise UsageError("--plot needs --out DIR for its drawings")
        if given["contexts"] and suite not in ("context", "all"):
            raise UsageError("--contexts goes with --suite context")
        if given["url"] and given["arms"]:
            raise UsageError("--arms goes with a model of this machine, not with --url")
        if (given["url"] or given["concurrency"]) and suite in ("context", "all"):
            raise UsageError(
                "the suite context is measured alone, and here",
                fix=["leave --url and --concurrency out, or choose another suite"],
            )
        names = ("temp", "top_k", "top_p", "seed")
        return cls(
            suites=SUITES if suite == "all" else (suite,),
            number=given["questions"],
            arms=("url",) if given["url"] else given["arms"] or ARMS,
            url=given["url"] or "",
            people=given["concurrency"] or (1,),
            trials=given["trials"] or TRIALS,
            max_tokens=given["max_tokens"] or TOKENS,
            contexts=given["contexts"],
            sampling={n: given[n] for n in names if given[n] is not None},
            cooldown=given["cooldown"],
            out=Path(given["out"]).expanduser() if given["out"] else None,
            compare=_earlier(given["compare"]),
            max_regression=MAX_REGRESSION
            if given["max_regression"] is None
            else given["max_regression"],
        )

    @property
    def arm_names(self) -> list[str]:
        """Of every way to be asked, as legs name it."""
        return [
            arm if people == 1 else f"{arm} x{people}"
            for people in self.people
            for arm in self.arms
        ]

    def asked(self, model: str) -> dict[str, Any]:
        """What decides what is measured, as the document holds it."""
        return {
            "model": model,
            "suites": list(self.suites),
            "number": self.number,
            "contexts": list(self.contexts) if self.contexts else None,
            "arms": self.arm_names,
            "trials": self.trials,
            "max_tokens": self.max_tokens,
            "sampling": dict(self.sampling),
        }

    def draw(self) -> Draw:
        """How tokens are chosen: greedily where nothing was asked for."""
        from splashpy.bench.session import Draw

        return Draw(
            temperature=self.sampling.get("temp", 0.0),
            top_k=self.sampling.get("top_k", 0),
            top_p=self.sampling.get("top_p", 1.0),
            seed=self.sampling.get("seed"),
        )


def questions(
    settings: Settings, invocation: Invocation, session: Session | None
) -> tuple[list[Question], dict[str, str]]:
    """Every question, and the commits of the suites that were downloaded.

    Without a session there is no suite of long prompts.

    Raises:
        UsageError: no prompt length fits the context.
        SplashError: a suite cannot be downloaded or read.
    """
    from splashpy.bench.suites import context_questions, quick_questions

    asked: list[Question] = []
    commits: dict[str, str] = {}
    for suite in settings.suites:
        if suite == "quick":
            asked += quick_questions(settings.number)
        elif suite == "context":
            assert session is not None
            asked += context_questions(_lengths(settings, invocation, session))
        else:
            found, commits[suite] = _hub_suite(suite, settings, invocation)
            asked += found
    return asked, commits


def _hub_suite(
    name: str, settings: Settings, invocation: Invocation
) -> tuple[list[Question], str]:
    from splashpy.bench.suites import HUB, hub_questions
    from splashpy.package.datasets import dataset_file, rows

    suite = HUB[name]
    path, commit = dataset_file(suite.repo, suite.file, offline=invocation.offline)
    try:
        return hub_questions(name, rows(path), settings.number or HUB_QUESTIONS), commit
    except (KeyError, TypeError) as error:
        raise IntegrityError(
            f"{suite.repo}: {suite.file} is not made as expected", why=repr(error)
        ) from None


def _lengths(
    settings: Settings, invocation: Invocation, session: Session
) -> tuple[int, ...]:
    from splashpy.bench.suites import CONTEXTS

    room = session.speech.context_max - settings.max_tokens
    wanted = settings.contexts or CONTEXTS
    fitting = tuple(length for length in wanted if length <= room)
    missing = [format_tokens(length) for length in wanted if length > room]
    if (settings.contexts and missing) or not fitting:
        raise UsageError(
            f"prompts of {', '.join(missing)} tokens do not fit",
            why=f"the context holds {format_tokens(session.speech.context_max)}, "
            f"{settings.max_tokens} of it for the answer",
            fix=["--contexts with smaller numbers, or a smaller --max-tokens"],
        )
    if missing:
        invocation.output.note(f"left out, longer than the context: {missing}")
    return fitting


def _earlier(name: str | None) -> Mapping[str, Any] | None:
    """The document of --compare.

    Raises:
        InputFileError: it is not one.
    """
    if name is None:
        return None
    import json

    from splashpy.cli.prompt import read_text
    from splashpy.errors import InputFileError

    text = read_text(name)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InputFileError(f"--compare {name}: not JSON", why=str(error)) from None
    if not isinstance(found, dict) or found.get("schema") != "splashpy.bench/1":
        raise InputFileError(
            f"--compare {name}: not a document of splashpy bench",
            fix=["splashpy bench MODEL --json > FILE.json"],
        )
    return found


def engine_wishes(invocation: Invocation) -> dict[str, Any]:
    """Every engine option that is not as usual."""
    from splashpy.protocol import LoadOptions

    # Where prompts are kept is a place of this machine, not a wish.
    usual = asdict(LoadOptions(cache_dir=str(invocation.paths.cached_prompts)))
    wishes = asdict(invocation.load_options())
    return {name: value for name, value in wishes.items() if value != usual[name]}
