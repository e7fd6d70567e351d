# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C once stops at the next safe point, twice stops at once.

SIGTERM counts as a first Ctrl-C whose work may take ten more seconds. The handlers only
note the request; the command asks :attr:`Interrupts.requested` between two steps.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self, TypeVar

from splashpy.cli.output import Stream

Told = TypeVar("Told")

GRACE_SECONDS = 10.0
MESSAGE = "stopping… press Ctrl-C again to stop now\n"


class Interrupts:
    """Handles SIGINT and SIGTERM while a command works.

    Use as a context manager on the main thread.
    """

    def __init__(
        self, stderr: Stream, *, hangup: bool = False, grace: float = GRACE_SECONDS
    ):
        """Nothing is changed yet.

        Args:
            stderr: where the message goes.
            hangup: the end of the terminal counts as SIGTERM.
            grace: seconds the work may take after SIGTERM.
        """
        self._stderr = stderr
        self._grace = grace
        self._signals = [signal.SIGINT, signal.SIGTERM]
        self._signals += [signal.SIGHUP] if hangup else []
        self._code = 0
        self._last_acts: list[Callable[[], None]] = []
        self._previous: dict[signal.Signals, Any] = {}

    @property
    def requested(self) -> bool:
        """Whether somebody asked to stop."""
        return self._code != 0

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 143 after SIGTERM, 0 before either."""
        return self._code

    def check(self) -> None:
        """Give up here if somebody asked to stop.

        Raises:
            KeyboardInterrupt: with the exit code as its argument.
        """
        if self._code:
            raise KeyboardInterrupt(self._code)

    def checked(self, tell: Callable[[Told], None]) -> Callable[[Told], None]:
        """``tell`` after :meth:`check`: work that says how far it is stops there."""

        def check_and_tell(event: Told) -> None:
            self.check()
            tell(event)

        return check_and_tell

    def before_exit(self, act: Callable[[], None]) -> None:
        """Call ``act`` when a second Ctrl-C ends the process at once."""
        self._last_acts.append(act)

    def __enter__(self) -> Self:
        """Take the signals over."""
        for number in self._signals:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        """Give the signals back; after a request to stop, to the system.

        One more Ctrl-C while the interpreter shuts down then ends it without a word.
        """
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if self._code else handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._code:
            self._end()
        number = signal.SIGTERM if number == signal.SIGHUP else number
        self._code = 128 + number
        if number == signal.SIGTERM:
            limit = threading.Timer(self._grace, self._end)
            limit.daemon = True
            limit.start()
        else:
            self._say_so()

    def _say_so(self) -> None:
        # os.write, because the interrupted code may be inside the stream's own lock.
        text = f"\n{MESSAGE}" if self._stderr.terminal else MESSAGE
        with contextlib.suppress(OSError):
            os.write(self._stderr.file.fileno(), text.encode())

    def _end(self) -> None:
        for act in self._last_acts:
            act()
        os._exit(self._code)
