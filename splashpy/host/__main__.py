# SPDX-License-Identifier: Apache-2.0
"""The engine host as a process: ``python -m splashpy.host FD``.

FD is one end of a socket pair; commands come in and events go out as JSON lines.
Standard output and error are a log, never the channel. The process ends when it is
told to, or when the other end closes: a killed interface leaves no engine behind.
"""

from __future__ import annotations

import faulthandler
import os
import socket
import sys

from splashpy.host.host import Host
from splashpy.host.outbox import Outbox
from splashpy.protocol import Event, Failure, Generate, Log, Shutdown
from splashpy.wire import command_from_line

_FATAL_STATUS = 70  # the engine is no longer sound
_GRACE_SECONDS = 1.5  # for the work under way when the interface is gone


def main() -> int:
    """Serve the socket named on the command line."""
    faulthandler.enable()
    channel = socket.socket(fileno=int(sys.argv[1]))
    outbox = Outbox(channel.sendall)

    def emit(event: Event) -> None:
        outbox.put(event)
        if isinstance(event, Failure) and event.fatal:
            outbox.close(_GRACE_SECONDS)
            os._exit(_FATAL_STATUS)

    host = Host(emit)
    grace = _GRACE_SECONDS
    with channel.makefile("rb") as lines:
        for line in lines:
            try:
                command = command_from_line(line)
            except ValueError as error:
                outbox.put(Log(level="error", text=f"unreadable command: {error}"))
                continue
            if isinstance(command, Shutdown):
                grace = command.grace_ms / 1e3
                break
            if isinstance(command, Generate) and command.gather_ms:
                outbox.gather(command.id, command.gather_ms / 1e3)
            host.handle(command)
    host.close(grace)
    outbox.close(grace)
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # A forward under way on the engine thread cannot be interrupted; leave it behind.
    os._exit(status)
