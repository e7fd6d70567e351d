# SPDX-License-Identifier: Apache-2.0
"""``splashpy unpack``: a package comes apart into a target and a drafter."""

from __future__ import annotations

from pathlib import Path

import click

from splashpy.cli.announcement import announce
from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON
from splashpy.cli.page import Page, PageCommand
from splashpy.cli.signals import Interrupts
from splashpy.errors import UsageError


def unpack(invocation: Invocation) -> int:
    """Write the parts; their directories go to stdout.

    Raises:
        SplashError: not a package, damaged, or no room.
        KeyboardInterrupt: stopped; nothing is left.
    """
    from splashpy.package.progress import CancelledError
    from splashpy.packing.gather import Work
    from splashpy.packing.inputs import resolve
    from splashpy.packing.unpack import unpack as write

    given, output = invocation.given, invocation.output
    if given["folder"] is None:
        raise UsageError("-o DIR is missing", fix=["splashpy unpack PACKAGE -o DIR"])
    announce(invocation, given["package"], given["revision"])
    progress = invocation.progress()
    with Interrupts(output.err) as interrupts:
        work = Work(progress.update, lambda: interrupts.requested)
        try:
            package = resolve(
                given["package"],
                given["revision"],
                invocation.paths,
                offline=invocation.offline,
                progress=work.progress,
                cancelled=work.cancelled,
            )
            folder = Path(given["folder"]).expanduser().absolute()
            parts = write(package, folder, force=given["replace"], work=work)
        except CancelledError:
            raise KeyboardInterrupt(interrupts.exit_code) from None
        finally:
            progress.close()
    written = {"target": parts.target, "draft": parts.draft}
    if output.json:
        fields = {name: str(path) if path else None for name, path in written.items()}
        output.document("unpack", fields)
    else:
        for path in filter(None, written.values()):
            output.result(str(path))
    return 0


UNPACK = PageCommand(
    "unpack",
    page=Page(
        usage="PACKAGE -o DIR",
        summary="Take a package apart into DIR/target and DIR/draft.",
        examples=(
            (
                "splashpy unpack demo -o ./parts",
                "a model mlx-lm loads, and a drafter as its repository has it",
            ),
            ("splashpy unpack ./pair -o ./parts --force", "replace older parts"),
        ),
        notes=(
            "PACKAGE is a directory, OWNER/REPO[@REV], or an installed package, of",
            "splashpy or of Splash. Packing the parts again gives the same package.",
        ),
    ),
    arguments=(click.Argument(["package"], metavar="PACKAGE"),),
    options=("folder", "replace", "revision", *COMMON),
    run=unpack,
)
