# SPDX-License-Identifier: Apache-2.0
"""What a session knows about its engine, and how that changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from splashpy.protocol import (
    Device,
    EngineHello,
    Event,
    LoadProgress,
    Memory,
    Ready,
)

Phase = Literal["starting", "loading", "ready", "unloaded", "stuck", "failed", "dead"]
"""Of the engine: ``failed`` said why it cannot serve, ``dead`` is gone."""


@dataclass(slots=True)
class EngineView:
    """What is known about the engine."""

    phase: Phase = "starting"
    progress: LoadProgress | None = None
    ready: Ready | None = None
    device: Device | None = None
    memory: Memory | None = None
    _phase_before_stuck: Phase = "starting"

    @property
    def pressure(self) -> Literal["normal", "warn", "critical"]:
        """How short memory is."""
        return self.memory.pressure if self.memory is not None else "normal"

    @property
    def settled(self) -> bool:
        """Nothing about it changes by itself."""
        return self.phase in ("ready", "unloaded", "dead", "failed")

    @property
    def shared(self) -> bool:
        """Whether it computes on the processor the interface runs on."""
        # A GPU says how much it may hold; a processor holds whatever there is.
        device = self.device
        return bool(device and device.name and not device.working_set_bytes)

    def hear(self, event: Event) -> bool:
        """Take in what is about the engine itself; whether the event was."""
        match event:
            case EngineHello():
                self.device = event.device
            case LoadProgress():
                self.phase = "loading"
                self.progress = event
            case Ready():
                self.phase = "ready"
                self.ready = event
            case Memory():
                self.memory = event
            case _:
                return False
        return True

    def fall_silent(self) -> bool:
        """It gives no sign of life; whether that is new."""
        if self.phase == "stuck":
            return False
        self._phase_before_stuck, self.phase = self.phase, "stuck"
        return True

    def recover(self) -> bool:
        """It spoke; whether it had fallen silent."""
        if self.phase != "stuck":
            return False
        self.phase = self._phase_before_stuck
        return True
