# SPDX-License-Identifier: Apache-2.0
"""Waits for keys without asking for them again and again.

Textual 8.2's driver looks for input ten times a second and asks its exit event each
time whether to go on. Here that event lets the reading thread sleep until a key comes
or the driver ends, so a chat nobody touches costs no processor time. For a while after
a key Textual's own rhythm stays: it tells a lone escape from the beginning of a
sequence by the time that passes.
"""

from __future__ import annotations

import os
import select
import threading
from time import monotonic
from typing import Any

from textual.drivers.linux_driver import LinuxDriver

_AWAKE_SECONDS = 1.0


class RestfulDriver(LinuxDriver):
    """Textual's driver, asleep while nothing is typed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.exit_event = ExitEvent(self.fileno)

    def close(self) -> None:
        """Release what the driver holds."""
        super().close()
        self.exit_event.close()


class ExitEvent(threading.Event):
    """The exit event of a reading thread, which sleeps in ``is_set``.

    Args:
        fileno: of the input.
    """

    def __init__(self, fileno: int) -> None:
        super().__init__()
        self._fileno = fileno
        self._wake, self._waker = os.pipe()
        self._asked_by = threading.get_ident()
        self._awake_until = 0.0

    def is_set(self) -> bool:
        """Whether to end; a thread that reads learns it after the next key."""
        if threading.get_ident() != self._asked_by and not super().is_set():
            self._rest()
        return super().is_set()

    def set(self) -> None:
        """End, and wake whoever sleeps."""
        super().set()
        os.write(self._waker, b"\n")

    def clear(self) -> None:
        """Go on."""
        os.read(self._wake, 1)
        super().clear()

    def close(self) -> None:
        """Give the pipe back."""
        os.close(self._wake)
        os.close(self._waker)

    def _rest(self) -> None:
        now = monotonic()
        if now < self._awake_until:
            return
        readable, _, _ = select.select([self._fileno, self._wake], [], [])
        if self._fileno in readable:
            self._awake_until = monotonic() + _AWAKE_SECONDS
