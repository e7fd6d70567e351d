# SPDX-License-Identifier: Apache-2.0
"""What an engine says of itself while it lives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from splashpy.protocol import EngineHello, Event, LoadProgress, Memory, Phases, Shed

_SHEDS = 8  # remembered


@dataclass(slots=True)
class Vitals:
    """The last word on everything.

    Attributes:
        clock: seconds.
        progress: of loading.
        memory: in use.
        phases: of its requests.
        pid: of its process; 0 where there is none.
        kernels: it may compute with kernels of its own.
        sheds: what it gave up for want of memory, and when; of all engines so far.
    """

    clock: Callable[[], float]
    progress: LoadProgress = field(default_factory=lambda: _BEGINNING)
    memory: Memory = field(default_factory=Memory)
    phases: Phases = field(default_factory=Phases)
    pid: int = 0
    kernels: bool = False
    sheds: deque[tuple[float, Shed]] = field(
        default_factory=lambda: deque(maxlen=_SHEDS)
    )

    def take(self, event: Event) -> bool:
        """Take note; False: the event is about something else."""
        match event:
            case EngineHello():
                self.pid, self.kernels = event.pid, event.kernels
            case LoadProgress():
                self.progress = event
            case Memory():
                self.memory = event
            case Phases():
                self.phases = event
            case Shed():
                self.sheds.append((self.clock(), event))
            case _:
                return False
        return True

    def gone(self) -> None:
        """The engine is no more."""
        self.pid = 0
        self.memory, self.phases = Memory(), Phases()

    def begin_again(self) -> None:
        """A model that was unloaded is loaded."""
        self.progress = _BEGINNING


_BEGINNING = LoadProgress(phase="resolve")
