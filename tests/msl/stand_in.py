# SPDX-License-Identifier: Apache-2.0
"""Let splashpy's own operations run their kernels on the emulator.

:class:`StandIn` takes the place of ``mx.fast.metal_kernel``: what it gives are emulated
kernels that raise for every finding, and every launch leaves its report here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from msl import operands
from msl.emulator import EmulatedKernel, Emulation, KernelFault, Report

from splashpy.kernels import gate, metal


@dataclass(slots=True)
class StandIn:
    """Makes emulated kernels.

    Attributes:
        emulation: of the launches that follow.
        gaps: names of inputs that are laid out with gaps between their rows, as a view
            of a larger buffer is.
        reports: of every launch, in order.
        names: of the kernels launched, in order.
        calls: how each was constructed and called, in order.
    """

    emulation: Emulation = field(default_factory=Emulation)
    gaps: frozenset[str] = frozenset()
    reports: list[Report] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    calls: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)

    def __call__(self, **construction: Any) -> _Recorded:
        return _Recorded(self, construction, EmulatedKernel(**construction))

    def moved(self) -> int:
        """Bytes that all launches so far moved between memory and the cache."""
        traffic = [part for report in self.reports for part in report.traffic.values()]
        return sum(part.moved for part in traffic)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """An emulated kernel whose reports the stand-in keeps."""

    owner: StandIn
    construction: dict[str, Any]
    kernel: EmulatedKernel

    def __call__(self, *, inputs: Sequence[Any], **call: Any) -> list[mx.array]:
        laid_out = [
            operands.spread(value) if name in self.owner.gaps else value
            for name, value in zip(self.kernel.input_names, inputs, strict=True)
        ]
        report = self.kernel.launch(
            inputs=laid_out, emulation=self.owner.emulation, **call
        )
        self.owner.calls.append((self.construction, {"inputs": inputs, **call}))
        self.owner.reports.append(report)
        self.owner.names.append(self.kernel.name.removeprefix("splashpy_"))
        if report.findings:
            raise KernelFault(self.kernel.name, report.findings)
        return report.outputs


@contextmanager
def emulated(
    allowed: Mapping[str, bool] | None = None, emulation: Emulation | None = None
) -> Iterator[StandIn]:
    """Run operations as emulated kernels inside a ``with`` block.

    Args:
        allowed: which operations; None is all of them.
        emulation: of the launches.
    """
    stand_in = StandIn(emulation or Emulation())
    original = mx.fast.metal_kernel
    metal.build.cache_clear()
    mx.fast.metal_kernel = stand_in
    mx.disable_compile()
    try:
        with gate.ruled(lambda name, _: allowed is None or allowed.get(name, False)):
            yield stand_in
    finally:
        mx.enable_compile()
        mx.fast.metal_kernel = original
        metal.build.cache_clear()
