# SPDX-License-Identifier: Apache-2.0
"""What one command was given, from every source, in one place."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splashpy.cli import config, values
from splashpy.cli.options import OPTIONS, Environment, prepare_hub
from splashpy.cli.output import Output
from splashpy.cli.progress import ProgressLine
from splashpy.paths import Paths

if TYPE_CHECKING:
    from splashpy.protocol import LoadOptions, Sampling

_EXCLUSIVE = (
    ("draft", "no_draft", "it is one drafter or none"),
    ("lookup", "no_lookup", "it is on or off"),
    ("no_draft", "lookup", "drafts from repeated text are drafts too"),
    ("no_draft", "block_size", "without drafts every pass produces one token"),
    ("no_draft", "draft_bits", "without drafts no drafter is loaded"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One command and its surroundings.

    Attributes:
        environment: variables, read once.
        paths: where splashpy keeps its files.
        config: what config.toml says.
        output: stdout and stderr.
        given: values by the names of the option table and of the arguments; None
            (a switch: False) where neither a flag nor a variable gave one.
        closing: called when the command has succeeded.
    """

    environment: Environment
    paths: Paths
    config: config.Config
    output: Output
    given: Mapping[str, Any]
    closing: list[Callable[[], None]] = field(default_factory=list)

    @classmethod
    def of(cls, flags: Mapping[str, Any], *, lenient: bool = False) -> Invocation:
        """Read the environment and the configuration for a parsed command.

        Args:
            flags: values by the names of the option table and of the arguments.
            lenient: a config.toml that cannot be used is a warning.

        Raises:
            UsageError: a variable or config.toml has a value that is not allowed.
            PermissionDeniedError: config.toml cannot be read.
        """
        environment = Environment.read()
        paths = Paths.default(environment.variables)
        invocation = cls(
            environment=environment,
            paths=paths,
            config=_wishes(paths.config / "config.toml", lenient=lenient),
            output=Output.of(flags, environment),
            given=_with_variables(flags, environment),
        )
        prepare_hub(offline=invocation.offline)
        for warning in invocation.config.warnings:
            invocation.output.warn(warning)
        if invocation.given.get("wired") == "weights" and not _may_wire():
            text = "--wired weights has no effect: only macOS 15 or newer wires memory"
            invocation.output.warn(text)
        return invocation

    @property
    def offline(self) -> bool:
        """Whether the network is forbidden."""
        return bool(self.given.get("offline")) or self.environment.offline

    @property
    def wanted_model(self) -> str | None:
        """The model named by a variable or config.toml."""
        return self.environment.get("SPLASHPY_MODEL") or self.config.get(
            "defaults.model"
        )

    def progress(self) -> ProgressLine:
        """A progress display that fits stderr and the flags."""
        output = self.output
        machine = output.json or output.json_lines
        silent = output.quiet or machine or self.given.get("no_progress")
        return ProgressLine(
            output.err,
            enabled=not silent,
            live=output.err.terminal and self.environment.get("TERM") != "dumb",
            keep=output.verbose > 0,
            columns=output.columns,
        )

    def refuse_pairs(self, pairs: Iterable[tuple[str, str, str]]) -> None:
        """Refuse options that make no sense together.

        Args:
            pairs: names of two options, and why one excludes the other.

        Raises:
            UsageError: both of a pair were given.
        """
        from splashpy.errors import UsageError

        for first, second, why in pairs:
            if self.given[first] and self.given[second]:
                flags = [OPTIONS[name].flag for name in (first, second)]
                raise UsageError(
                    f"{flags[0]} and {flags[1]} exclude each other", why=why
                )

    def load_options(self) -> LoadOptions:
        """The wishes about the engine.

        Raises:
            UsageError: options that exclude each other, or no such directory.
            ModelKindError: the directory holds no drafter.
        """
        from splashpy.protocol import LoadOptions

        self.refuse_pairs(_EXCLUSIVE)
        given = self.given
        draft = given["draft"]
        if draft is not None:
            draft = self.drafter_directory(draft, "--draft")
        return LoadOptions(
            draft=draft,
            no_draft=given["no_draft"],
            lookup=False if given["no_lookup"] else given["lookup"] or None,
            block_size=given["block_size"],
            draft_bits=given["draft_bits"],
            max_context=given["max_context"],
            prefix_cache=not given["no_prefix_cache"],
            kv=given["kv"] or "auto",
            cache_ram=given["cache_ram"],
            cache_dir=str(self.paths.cached_prompts),
            cache_disk=given["cache_disk"],
            max_memory=given["memory"],
            wired=given["wired"] == "weights" and _may_wire(),
            max_concurrent=min(given.get("max_concurrent") or 4, 32),
        )

    def drafter_directory(self, value: str, flag: str) -> str:
        """A directory as it is; OWNER/REPO[@REVISION] downloaded.

        Args:
            value: what was given.
            flag: the option it was given with.

        Raises:
            UsageError: neither a directory nor a repository.
            ModelKindError: the directory holds no drafter.
        """
        directory = Path(value).expanduser()
        if not directory.is_dir():
            directory = self._downloaded_drafter(value, flag)
        _check_drafter(value, directory, flag)
        return str(directory.absolute())

    def _downloaded_drafter(self, value: str, flag: str) -> Path:
        from splashpy.cli.announcement import announce
        from splashpy.cli.signals import Interrupts
        from splashpy.errors import UsageError
        from splashpy.package import hub, names
        from splashpy.package.progress import CancelledError

        wanted = names.parse(value)
        if wanted.kind != "hub":
            raise UsageError(
                f"{flag} got {value!r}",
                why="there is no such directory, and it is not OWNER/REPO",
            )
        announce(self, value, None)
        progress = self.progress()
        with Interrupts(self.output.err) as interrupts:
            try:
                return hub.snapshot(
                    wanted.repo,
                    wanted.revision,
                    offline=self.offline,
                    progress=progress.update,
                    cancelled=lambda: interrupts.requested,
                )
            except CancelledError:
                raise KeyboardInterrupt(interrupts.exit_code) from None
            finally:
                progress.close()

    def sampling(self) -> Sampling:
        """How tokens are chosen; None fields are the package's defaults."""
        from splashpy.protocol import Sampling

        given = self.given
        return Sampling(
            temperature=given["temp"],
            top_k=given["top_k"],
            top_p=given["top_p"],
            min_p=given["min_p"],
            repetition_penalty=given["repetition_penalty"],
            presence_penalty=given["presence_penalty"],
            frequency_penalty=given["frequency_penalty"],
            penalty_window=given["penalty_window"],
            logit_bias=given["logit_bias"],
            seed=given["seed"],
            stop=given["stop"],
        )


def _wishes(path: Path, *, lenient: bool) -> config.Config:
    """What config.toml says; where it cannot be used, and that is no error, nothing."""
    from splashpy.errors import SplashError

    try:
        return config.read(path)
    except SplashError as error:
        if not lenient:
            raise
        return config.Config({}, (error.message,))


def _may_wire() -> bool:
    """Whether the system is one that can; whether this machine can is known later."""
    return sys.platform == "darwin"


def _check_drafter(value: str, directory: Path, flag: str) -> None:
    """Refuse a directory that cannot be a drafter, before a model is loaded for it.

    Raises:
        ModelKindError: it has no config.json.
    """
    from splashpy.errors import ModelKindError

    if (directory / "config.json").is_file():
        return
    inside = directory / "draft"  # of a package
    packaged = (inside / "config.json").is_file()
    raise ModelKindError(
        f"{flag} {value}: no drafter, config.json is missing",
        why="a drafter's directory holds config.json and model.safetensors",
        fix=[
            f"{flag} {shlex.quote(str(inside))}"
            if packaged
            else f"leave {flag} out, to use the drafter of the model's package"
        ],
    )


def _with_variables(
    flags: Mapping[str, Any], environment: Environment
) -> dict[str, Any]:
    """The flags; where one is missing, the variable that stands in for it.

    Options the command does not have are there as not given.
    """
    merged = {name: row.absent for name, row in OPTIONS.items()} | dict(flags)
    for name, row in OPTIONS.items():
        if name in flags and row.parser and row.variable and flags[name] is None:
            text = environment.get(row.variable)
            if text:
                merged[name] = values.parse(row.parser, text, row.variable)
    return merged
