# SPDX-License-Identifier: Apache-2.0
"""Has the repository of an installed model moved on?

The Hub is asked once, while the model loads and works, and told about at the end. It
holds nothing up: what has not answered by then is not waited for. A commit never
moves, so for one nobody is asked.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from splashpy.errors import SplashError
from splashpy.package import names

if TYPE_CHECKING:
    from splashpy.cli.invocation import Invocation
    from splashpy.package.library import InstalledModel

SECONDS = 5.0
_COMMIT = re.compile("[0-9a-f]{40}")


def begin(invocation: Invocation, name: str, model: InstalledModel) -> None:
    """Ask about a model that is about to be used; told when the command ends.

    Args:
        invocation: of the command; its options may forbid it.
        name: what the model was called.
        model: what was found.
    """
    wish = names.parse(model.name if "/" not in name else name)
    if model.origin != "hub" or wish.kind != "hub" or not model.revision:
        return
    forbidden = invocation.offline or invocation.given["no_update_check"]
    if forbidden or _COMMIT.fullmatch(wish.revision or ""):
        return
    check = UpdateCheck(wish, model.revision)
    invocation.closing.append(lambda: _tell(invocation, check))


class UpdateCheck:
    """One question to the Hub, asked on a thread of its own.

    Args:
        wish: repository, and a branch or tag of it.
        installed: commit that is here.

    Attributes:
        answer: a sentence worth telling; empty where nothing is new or known yet.
    """

    def __init__(self, wish: names.ModelName, installed: str):
        self._wish, self._installed = wish, installed
        self.answer = ""
        self.thread = threading.Thread(
            target=self._ask, name="splashpy-update-check", daemon=True
        )
        self.thread.start()

    def _ask(self) -> None:
        from splashpy.package import hub

        repo = self._wish.repo
        try:
            newest = hub.newest_commit(repo, self._wish.revision, seconds=SECONDS)
        except SplashError as error:
            reason = error.why or error.message
            self.answer = f"could not ask the Hub for a newer {repo}: {reason}"
            return
        except Exception as error:  # noqa: BLE001 - a question is not worth a traceback
            self.answer = f"could not ask the Hub for a newer {repo}: {error!r}"
            return
        if newest and newest != self._installed:
            self.answer = (
                f"{repo} has a newer revision, {newest[:7]} instead of "
                f"{self._installed[:7]}; splashpy pull {self._wish.text}"
            )


def _tell(invocation: Invocation, check: UpdateCheck) -> None:
    if check.answer:
        invocation.output.note(check.answer)
