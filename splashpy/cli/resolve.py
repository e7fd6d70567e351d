# SPDX-License-Identifier: Apache-2.0
"""From what a person calls a model to a directory that can be loaded."""

from __future__ import annotations

import shlex
from typing import Any

from splashpy.cli import update_check
from splashpy.cli.invocation import Invocation
from splashpy.cli.signals import Interrupts
from splashpy.errors import ModelMissingError, ModelUnknownError, UsageError
from splashpy.package import names
from splashpy.package.library import InstalledModel, Library
from splashpy.package.progress import CancelledError
from splashpy.units import format_bytes


def wanted_name(invocation: Invocation, library: Library, word: str | None) -> str:
    """The model meant: the word, a variable, config.toml, the only one, the demo.

    Raises:
        UsageError: --revision with something that has no revisions.
    """
    name = library.default_model(word or invocation.wanted_model)
    revision = invocation.given.get("revision")
    if not revision:
        return name
    parsed = names.parse(name)
    if parsed.kind != "hub" or parsed.revision:
        raise UsageError(
            f"--revision {revision} does not go with {name!r}",
            why="only OWNER/REPO without @REVISION has one to choose",
        )
    return f"{name}@{revision}"


def find_or_build(
    invocation: Invocation, word: str | None, interrupts: Interrupts
) -> InstalledModel:
    """The installed model meant; the demo is fetched and built when it is missing.

    Raises:
        SplashError: no such model, not installed, damaged, or the build failed.
        KeyboardInterrupt: somebody asked to stop the build.
    """
    library = Library(invocation.paths)
    name = wanted_name(invocation, library, word)
    try:
        found = library.find(name)
    except ModelUnknownError as error:
        raise _perhaps_a_prompt(invocation, error) from None
    except ModelMissingError:
        if name.lower() != names.DEFAULT:
            raise
        _announce_demo(invocation)
        build(invocation, name, interrupts)
        found = library.find(name)
    library.touch(found)
    update_check.begin(invocation, name, found)
    return found


def _announce_demo(invocation: Invocation) -> None:
    from splashpy.packing.pull import plan

    output = invocation.output
    planned = plan(names.DEFAULT, invocation.paths)
    size = format_bytes(planned.download_bytes)
    output.note(
        f"the demo model is not here yet; it is built once ({size} to download)"
    )
    if planned.memory:
        output.note(str(planned.memory))


def _perhaps_a_prompt(
    invocation: Invocation, error: ModelUnknownError
) -> ModelUnknownError:
    """The same error, with the command that takes all words as the prompt.

    Only some commands take words; the error of another stays as it is.
    """
    words = " ".join(invocation.given.get("words", ()))
    if not words or "/" in words:
        return error
    fix = [*error.fix, f"splashpy run {names.DEFAULT} {shlex.quote(words)}"]
    return ModelUnknownError(error.message, why=error.why, fix=fix)


def build(
    invocation: Invocation,
    name: str,
    interrupts: Interrupts,
    *,
    force: bool = False,
    vision: bool = False,
) -> str:
    """Fetch and build a model with progress on stderr; returns its directory.

    Args:
        invocation: of the command.
        name: as written.
        interrupts: may ask to stop.
        force: hash all of an installed model, and fetch again what is damaged.
        vision: fetch its vision tower, too.

    Raises:
        SplashError: it cannot be had.
        KeyboardInterrupt: somebody asked to stop; a rerun goes on where this stopped.
    """
    from splashpy.packing.pull import pull, pull_vision

    progress = invocation.progress()
    how: dict[str, Any] = {
        "offline": invocation.offline,
        "progress": progress.update,
        "cancelled": lambda: interrupts.requested,
    }
    try:
        path = pull(name, invocation.paths, force=force, **how)
        if vision:
            pull_vision(name, **how)
    except CancelledError:
        invocation.output.note("stopped; the same command goes on from here")
        raise KeyboardInterrupt(interrupts.exit_code) from None
    finally:
        progress.close()
    return str(path)
