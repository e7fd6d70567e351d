# SPDX-License-Identifier: Apache-2.0
"""Keys from a terminal: bytes that are no text are harmless, and silence costs nothing.

Textual 8.2's drivers wake ten times a second to look for keys, and end the application
at the first byte that is not UTF-8, which a terminal of another character set sends for
every accented letter. Here the thread that reads sleeps until there is something to
read, and decodes by the terminal's own character set.
"""

from __future__ import annotations

import os
import selectors
import threading
from codecs import getincrementaldecoder
from time import monotonic
from typing import TYPE_CHECKING, Any

from textual import constants, events
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.drivers.linux_inline_driver import LinuxInlineDriver
from textual.message import Message

_BYTES = 4096
_TICK_SECONDS = 0.1
# How long a lone escape may still become the beginning of a sequence.
_UNDECIDED_SECONDS = constants.ESCAPE_DELAY + 2 * _TICK_SECONDS


class Ending(threading.Event):
    """An event that also wakes who waits for a file.

    Attributes:
        wakes: file descriptor that can be read once the event is set.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wakes, self._wake = os.pipe()

    def set(self) -> None:
        """Set it and wake the reader."""
        super().set()
        os.write(self._wake, b"\n")

    def clear(self) -> None:
        """Take it back; nobody waits any more."""
        super().clear()
        os.read(self.wakes, _BYTES)

    def __del__(self) -> None:
        os.close(self.wakes)
        os.close(self._wake)


if TYPE_CHECKING:
    _Driver = LinuxDriver
else:
    _Driver = object


class _Input(_Driver):
    """Replaces how a driver of Textual reads.

    Attributes:
        encoding: of the terminal.
    """

    encoding = "utf-8"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.exit_event: Ending = Ending()

    def run_input_thread(self) -> None:
        """Read keys until the driver ends, or the terminal is gone."""
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder(self.encoding)("replace").decode
        decided_at = monotonic()
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            selector.register(self.exit_event.wakes, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                undecided = monotonic() < decided_at
                ready = selector.select(_TICK_SECONDS if undecided else None)
                if any(key.fd == self.fileno for key, _ in ready):
                    data = self._read()
                    if not data:
                        return
                    self._take(parser.feed(decode(data)))
                    decided_at = monotonic() + _UNDECIDED_SECONDS
                self._take(parser.tick())

    def _read(self) -> bytes:
        try:
            return os.read(self.fileno, _BYTES)
        except OSError:  # the application ends by another way
            return b""

    def _take(self, messages: Any) -> None:
        for message in messages:
            self.process_message(message)


class ScreenDriver(_Input, LinuxDriver):
    """For the whole terminal."""


class InlineDriver(_Input, LinuxInlineDriver):
    """For some rows below the shell's prompt."""

    def process_message(self, message: Message) -> None:
        """Note where the cursor is; hand everything else on."""
        if isinstance(message, events.CursorPosition):
            self.cursor_origin = (message.x, message.y)
        else:
            super().process_message(message)
