# SPDX-License-Identifier: Apache-2.0
"""What a training was asked for: by flags, by a TOML file, and by the run it continues.

A flag wins over the file, and both over what the run was begun with, which is kept in
``train.json`` of its directory. All three use the names of the flags without dashes in
front. What decides the weights cannot be changed once steps have been done.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splashpy.cli import values
from splashpy.cli.commands import nearest
from splashpy.cli.invocation import Invocation
from splashpy.cli.training_options import TRAINING_ROWS
from splashpy.errors import InputFileError, UsageError

if TYPE_CHECKING:
    from splashpy.training.plan import TrainingPlan
    from splashpy.training.writing import WritingPlan

RECORD = "train.json"
SEED = 42

_ROWS = {
    row.flag.removeprefix("--"): row
    for heading in ("Texts", "Drafter", "Training")
    for row in TRAINING_ROWS[heading]
}
_TEXTS = tuple(row.flag.removeprefix("--") for row in TRAINING_ROWS["Texts"])
_INVENTING = ("conversations", "question-tokens", "question-temp")
# These change how a run is done or told, not what is learned.
_FREE = (
    *("bits", "disk", "eval-prompts", "eval-tokens", "license", "max-memory"),
    "minutes",
)

# Option -> field of the dataclass that decides it.
_WRITING = {
    "conversations": "conversations",
    "batch": "batch",
    "question-tokens": "question_tokens",
    "question-temp": "question_temperature",
    "answer-tokens": "answer_tokens",
    "answer-temp": "answer_temperature",
}
_GEOMETRY = {
    "layers": "layers",
    "block-size": "block_size",
    "features": "feature_layers",
    "sources": "source_layers",
    "mask-token-id": "mask_token_id",
    "rank": "selector_rank",
    "candidates": "selector_top_k",
    "window": "window",
    "heads": "num_heads",
    "kv-heads": "num_kv_heads",
    "head-dim": "head_dim",
    "mlp-size": "intermediate_size",
    "conv-taps": "conv_kernel_size",
    "conv-group": "conv_group_size",
}
_OBJECTIVE = {
    "gamma": "gamma",
    "selector-weight": "selector_weight",
    "distillation": "distillation",
}
_PLAN = {
    "sequences": "sequences",
    "anchors": "anchors",
    "accumulation": "accumulation",
    "learning-rate": "learning_rate",
    "frequent-tokens": "frequent_tokens",
    "only": "only",
    "held-out": "held_out",
    "checkpoint-every": "checkpoint_every",
    "log-every": "log_every",
}
_NO_LIMIT = ("window", "gamma")  # 0 means none


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that was chosen; what is missing is decided by the training.

    Attributes:
        directory: of the run.
        chosen: values by the names of their flags.
        model: the model the run was begun with; empty for a new run.
        recorded: they are in the directory, so the run can go on.
    """

    directory: Path
    chosen: Mapping[str, Any]
    model: str = ""
    recorded: bool = False

    @classmethod
    def of(cls, invocation: Invocation) -> Settings:
        """Bring all sources together, and find what cannot work.

        Raises:
            UsageError: a value or a combination is not allowed, the directory holds
                a run that is not to go on, or there is none to go on with.
            InputFileError: a file cannot be read.
        """
        given = invocation.given
        if given["into"] is None:
            raise UsageError(
                "-o DIR is missing",
                why="texts, checkpoints and the drafter go there",
                fix=["splashpy train demo -o my-drafter"],
            )
        directory = Path(given["into"]).expanduser()
        chosen = _from_file(given["config"]) | _from_flags(given)
        if given["resume"]:
            settings = _continued(directory, chosen)
        else:
            _check_unused(directory)
            settings = cls(directory, chosen)
        settings.check()
        return settings

    @classmethod
    def of_texts(cls, directory: Path, given: Mapping[str, Any]) -> Settings:
        """Those of ``splashpy train data``.

        Args:
            directory: of the texts.
            given: what the command was given; ``questions`` is a file or None.

        Raises:
            UsageError: an option makes no sense with a file of questions.
        """
        settings = cls(directory, _from_flags(given))
        if given["questions"]:
            settings._refuse(_INVENTING, f"{given['questions']} brings the questions")
        return settings

    def get(self, name: str) -> Any:
        """The value of an option; None when it was not chosen."""
        return self.chosen.get(name)

    @property
    def data(self) -> list[Path]:
        """Texts, or one file of questions; empty lets the target invent them."""
        return [Path(each).expanduser() for each in self.chosen.get("data", ())]

    @property
    def geometry(self) -> dict[str, Any]:
        """Fields of ``Geometry`` that were chosen."""
        return self._fields(_GEOMETRY)

    @property
    def seed(self) -> int:
        """Of the texts, of new weights, and of the order of training."""
        return self.chosen.get("seed", SEED)

    def writing(self) -> WritingPlan:
        """How texts are written."""
        from splashpy.training.writing import WritingPlan

        return WritingPlan(seed=self.seed, **self._fields(_WRITING))

    def plan(self, steps: int) -> TrainingPlan:
        """How so many steps are done."""
        from splashpy.training.loss import Objective
        from splashpy.training.plan import TrainingPlan

        objective = Objective(**self._fields(_OBJECTIVE))
        fields = self._fields(_PLAN)
        return TrainingPlan(steps=steps, seed=self.seed, objective=objective, **fields)

    def check(self) -> None:
        """Find options that do not go together.

        Raises:
            UsageError: they do not.
            InputFileError: a --data does not exist.
        """
        if self.get("only") and not self.get("init"):
            raise UsageError(
                "--only selector goes with --init",
                why="a new drafter has nothing yet that its selector could choose from",
                fix=["--init DIR|REPO"],
            )
        if self.get("init"):
            self._refuse(_GEOMETRY, "--init brings a drafter with a shape of its own")
        self._check_data()

    def check_model(self, model: str) -> None:
        """Refuse to go on with a run for another model.

        Raises:
            UsageError: it is another one.
        """
        if self.model not in ("", model):
            raise UsageError(
                f"the run in {self.directory} was begun for {self.model}",
                why=f"now it is {model}",
                fix=["-o another directory"],
            )

    def record(self, model: str, **more: Any) -> Settings:
        """Keep them in the directory of the run, to go on with."""
        chosen = {**self.chosen, **more}
        settings = Settings(self.directory, chosen, model, recorded=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        content = {"model": model, "options": dict(settings.chosen)}
        path = self.directory / RECORD
        part = self.directory / f".{RECORD}.part"
        part.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        part.replace(path)
        return settings

    def command(self, model: str) -> str:
        """The whole command, as it would be typed without a file and without a run."""
        words = ["splashpy", "train", model]
        for name, value in self.chosen.items():
            for each in value if _ROWS[name].repeat else [value]:
                words += [f"--{name}", _spelled(each)]
        return shlex.join([*words, "-o", str(self.directory)])

    def resume_command(self, model: str, *, yes: bool) -> str:
        """The command that goes on with the run."""
        words = ["splashpy", "train", model, "-o", str(self.directory), "--resume"]
        return shlex.join([*words, "--yes"] if yes else words)

    def _fields(self, table: Mapping[str, str]) -> dict[str, Any]:
        chosen = {name: self.chosen[name] for name in table if name in self.chosen}
        for name in _NO_LIMIT:
            if chosen.get(name) == 0:
                chosen[name] = None
        return {table[name]: value for name, value in chosen.items()}

    def _check_data(self) -> None:
        for path in self.data:
            if not path.exists():
                raise InputFileError(f"--data {path}: no such file")
        files = [each for each in self.data if not each.is_dir()]
        if files and len(self.data) > 1:
            raise UsageError(
                f"--data {files[0]} is a file of questions, and there is other --data",
                why="only texts that are written already can be put together",
                fix=[f"splashpy train data MODEL {files[0]} -o TEXTS"],
            )
        if files:
            self._refuse(_INVENTING, "--data brings the questions")
        elif self.data:
            self._refuse(_TEXTS, "the texts of --data are written already")

    def _refuse(self, names: Mapping[str, str] | tuple[str, ...], why: str) -> None:
        wrong = [f"--{name}" for name in names if name in self.chosen]
        if wrong:
            raise UsageError(f"{', '.join(wrong)} cannot be chosen here", why=why)


def _from_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: list(given[row.name]) if row.repeat else given[row.name]
        for name, row in _ROWS.items()
        if given[row.name] != row.absent
    }


def _from_file(source: str | None) -> dict[str, Any]:
    """Options of a TOML file, read as the flags are."""
    if source is None:
        return {}
    import tomllib

    try:
        content = tomllib.loads(Path(source).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(
            f"--config {source} cannot be read", why=str(error)
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"--config {source} is not TOML", why=str(error)) from None
    chosen: dict[str, Any] = {}
    for key, value in content.items():
        name = key.replace("_", "-")
        if name not in _ROWS:
            near = nearest(name, list(_ROWS))
            raise UsageError(
                f"--config {source}: there is no option {key}",
                why=f"nearest: {', '.join(near)}" if near else "",
            )
        chosen[name] = _read(name, value, f"{source}: {key}")
    return chosen


def _read(name: str, value: Any, label: str) -> Any:
    row = _ROWS[name]
    assert row.parser is not None  # none of the rows is a switch
    parts = value if row.repeat and isinstance(value, list) else [value]
    read = [values.parse(row.parser, _spelled(part), label) for part in parts]
    return read if row.repeat else read[0]


def _spelled(value: Any) -> str:
    """A value as it is written on a command line."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "none"
    return str(value)


def _check_unused(directory: Path) -> None:
    if directory.is_file():
        raise UsageError(f"-o {directory} is a file", fix=["-o a new directory"])
    if (directory / RECORD).exists():
        raise UsageError(
            f"{directory} holds a run already",
            fix=["add --resume to go on with it", "-o another directory"],
        )
    if directory.is_dir() and any(each.name[0] != "." for each in directory.iterdir()):
        raise UsageError(
            f"{directory} is not empty, and holds no run",
            fix=["-o a new or empty directory"],
        )


def _continued(directory: Path, chosen: Mapping[str, Any]) -> Settings:
    """The settings of the run in a directory, with those that may change."""
    path = directory / RECORD
    if not path.is_file():
        raise UsageError(
            f"there is no run in {directory} to go on with",
            why=f"{path} does not exist",
            fix=["leave --resume out to begin one"],
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        model, options = content["model"], content["options"]
        begun = {name: _read(name, options[name], name) for name in options}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputFileError(f"{path} is damaged", why=str(error)) from None
    trained = (directory / "run" / "run.json").exists()
    fixed = _ROWS if trained else (*_TEXTS, "data", "seed")
    differing = [
        f"--{name} was {_spelled(begun[name]) if name in begun else 'not given'}, "
        f"now {_spelled(chosen[name])}"
        for name in chosen
        if name in fixed and name not in _FREE and begun.get(name) != chosen[name]
    ]
    if differing:
        raise UsageError(
            f"the run in {directory} was begun in another way",
            why="; ".join(differing),
            fix=["leave these options out", "-o another directory"],
        )
    return Settings(directory, {**begun, **chosen}, model, recorded=True)
