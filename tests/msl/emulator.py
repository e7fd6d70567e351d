# SPDX-License-Identifier: Apache-2.0
"""Run a Metal kernel on the CPU and report what is wrong with it.

:class:`EmulatedKernel` takes the place of what ``mx.fast.metal_kernel`` returns: same
construction, same call. :meth:`EmulatedKernel.launch` gives a report and does not raise
for a faulty kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np
from msl import building, operands
from msl.rewriting import translation_unit
from msl.signature import Input, Kernel, TemplateValue, generate

MOST_BUFFERS = 31
MOST_THREADS = 1024
CACHE_LINE = 128
REDUCTIONS = ("butterfly", "ascending", "descending")
_MOST_FINDINGS = 32  # as in runtime/findings.cpp
_INPUT, _OUTPUT, _TABLE = 0, 1, 2


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("known", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("role", ctypes.c_int32),
        ("may_have_holes", ctypes.c_int32),
        ("bytes_read", ctypes.c_uint64),
        ("bytes_written", ctypes.c_uint64),
        ("bytes_fetched", ctypes.c_uint64),
        ("bytes_moved", ctypes.c_uint64),
    )


class _Finding(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_char * 32),
        ("text", ctypes.c_char * 352),
        ("line", ctypes.c_int32),
        ("pc", ctypes.c_int64),
        ("other_pc", ctypes.c_int64),
    )


class _Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("threadgroup", ctypes.c_uint32 * 3),
        ("seed", ctypes.c_uint32),
        ("reduction_order", ctypes.c_int32),
        ("step_limit", ctypes.c_uint64),
        ("threadgroup_bytes_limit", ctypes.c_uint64),
        ("cache_lines", ctypes.c_uint64),
        ("buffers", ctypes.POINTER(_Buffer)),
        ("buffer_count", ctypes.c_int32),
        ("findings", ctypes.POINTER(_Finding)),
    )


@dataclass(frozen=True, slots=True)
class Emulation:
    """The device and the course of one launch.

    Attributes:
        seed: decides the order of lanes and threadgroups.
        reduction: order in which ``simd_sum`` and its kin combine the lanes, one of
            :data:`REDUCTIONS`. A device promises none.
        thread_limit: most threads of a threadgroup; a real pipeline may allow less
            than :data:`MOST_THREADS`.
        threadgroup_bytes: threadgroup memory of the device.
        step_limit: memory accesses after which a launch counts as endless.
        holes: outputs that the kernel need not fill.
        cache_bytes: of the cache before memory that ``Traffic.moved`` is counted with,
            in lines of :data:`CACHE_LINE` bytes; 0 counts nothing. A device has
            megabytes; tests are small, so theirs is small as well.
    """

    seed: int = 0
    reduction: str = "butterfly"
    thread_limit: int = 1024
    threadgroup_bytes: int = 32768
    step_limit: int = 20_000_000
    holes: frozenset[str] = frozenset()
    cache_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a kernel.

    Attributes:
        kind: ``out-of-bounds``, ``input-write``, ``uninitialised-read``,
            ``unwritten-output``, ``race``, ``divergence``, ``launch-limit``,
            ``no-progress``, ``invalid-lane``, ``misaligned`` or ``undefined``.
        text: who did what to which buffer.
        line: of the text MLX compiles; 0 where it is not known.
        code: that line.
    """

    kind: str
    text: str
    line: int = 0
    code: str = ""

    def __str__(self) -> str:
        where = f"\n    line {self.line}: {self.code}" if self.line else ""
        return f"{self.kind}: {self.text}{where}"


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one buffer that the kernel's lanes moved.

    Attributes:
        read: by every load of every lane.
        fetched: each byte counted once per threadgroup that loads it.
        written: by every store.
        moved: between memory and a cache that all threadgroups share: whole lines that
            were not in it when they were read, and written bytes that leave it.
    """

    read: int
    fetched: int
    written: int
    moved: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What a launch gave.

    Attributes:
        outputs: arrays in the order of the output names.
        findings: faults, in the order in which they were met.
        traffic: by buffer name; without shapes and strides.
        kernel: the text that was compiled.
    """

    outputs: list[mx.array]
    findings: list[Finding]
    traffic: Mapping[str, Traffic]
    kernel: Kernel

    @property
    def kinds(self) -> set[str]:
        """The kinds of the findings."""
        return {finding.kind for finding in self.findings}


class KernelFault(RuntimeError):  # noqa: N818 - what is wrong is the kernel
    """A kernel that must not run on a device.

    Attributes:
        findings: its faults.
    """

    def __init__(self, name: str, findings: Sequence[Finding]) -> None:
        self.findings = list(findings)
        super().__init__("\n".join([f"kernel {name}", *map(str, findings)]))


@dataclass(frozen=True, slots=True)
class _Memory:
    """The buffers of one launch; numpy owns the bytes."""

    names: list[str] = field(default_factory=list)
    data: list[np.ndarray] = field(default_factory=list)
    known: list[np.ndarray] = field(default_factory=list)
    roles: list[int] = field(default_factory=list)

    def add(self, name: str, data: np.ndarray, known: np.ndarray, role: int) -> None:
        self.names.append(name)
        self.data.append(np.ascontiguousarray(data).view(np.uint8).reshape(-1))
        self.known.append(known)
        self.roles.append(role)

    def structures(self, holes: frozenset[str]) -> ctypes.Array[_Buffer]:
        made = (_Buffer * len(self.names))()
        for i, name in enumerate(self.names):
            made[i].name = name.encode()
            made[i].data = self.data[i].ctypes.data
            made[i].known = self.known[i].ctypes.data
            made[i].size = self.data[i].size
            made[i].role = self.roles[i]
            made[i].may_have_holes = name in holes
        return made


class EmulatedKernel:
    """Stands in for a kernel object of ``mx.fast.metal_kernel``."""

    def __init__(
        self,
        name: str,
        input_names: Sequence[str],
        output_names: Sequence[str],
        source: str,
        header: str = "",
        ensure_row_contiguous: bool = True,
        atomic_outputs: bool = False,
        compile_options: Mapping[str, str] | None = None,
        *,
        emulation: Emulation | None = None,
    ) -> None:
        """Take what ``mx.fast.metal_kernel`` takes, and a default emulation."""
        del compile_options  # there is one arithmetic here
        self.name = name
        self.input_names = list(input_names)
        self.output_names = list(output_names)
        self.source = source
        self.header = header
        self.ensure_row_contiguous = ensure_row_contiguous
        self.atomic_outputs = atomic_outputs
        self.emulation = emulation or Emulation()

    def __call__(self, **call: object) -> list[mx.array]:
        """Launch the kernel with the keywords of MLX's call.

        Raises:
            KernelFault: the report has findings.
        """
        ignored = ("verbose", "stream")
        report = self.launch(**{k: v for k, v in call.items() if k not in ignored})
        if report.findings:
            raise KernelFault(self.name, report.findings)
        return report.outputs

    def launch(
        self,
        *,
        inputs: Sequence[operands.Array],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[mx.Dtype],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        template: Sequence[tuple[str, TemplateValue]] | None = None,
        init_value: float | None = None,
        emulation: Emulation | None = None,
    ) -> Report:
        """Run one launch to its end or to its first fatal fault.

        Raises:
            CompileError: the kernel is not valid C++ under the shim headers.
            UnsupportedError: it uses what the emulator does not know.
        """
        emulation = emulation or self.emulation
        arrays = [
            operands.operand(a, row_contiguous=self.ensure_row_contiguous)
            for a in inputs
        ]
        kernel = self._generate(arrays, output_dtypes, template or ())
        outputs = [
            operands.empty_output(shape, dtype, init_value)
            for shape, dtype in zip(output_shapes, output_dtypes, strict=True)
        ]
        memory = self._memory(kernel, arrays, outputs)
        size = tuple(min(t, g) for t, g in zip(threadgroup, grid, strict=True))
        refused = _refused(kernel, grid, size, emulation)
        if refused:
            return Report([], refused, {}, kernel)
        findings, traffic = _run(kernel, memory, grid, size, emulation)
        results = [
            operands.as_mlx(memory.data[memory.names.index(name)], shape, dtype)
            for name, shape, dtype in zip(
                self.output_names, output_shapes, output_dtypes, strict=True
            )
        ]
        return Report(results, findings, traffic, kernel)

    def _generate(
        self,
        arrays: Sequence[operands.Operand],
        output_dtypes: Sequence[mx.Dtype],
        template: Sequence[tuple[str, TemplateValue]],
    ) -> Kernel:
        named = zip(self.input_names, arrays, strict=True)
        return generate(
            self.name,
            [Input(name, a.dtype, a.shape) for name, a in named],
            list(zip(self.output_names, output_dtypes, strict=True)),
            self.source,
            header=self.header,
            template=template,
            atomic_outputs=self.atomic_outputs,
        )

    def _memory(
        self,
        kernel: Kernel,
        arrays: Sequence[operands.Operand],
        outputs: Sequence[tuple[np.ndarray, np.ndarray]],
    ) -> _Memory:
        memory = _Memory()
        array_of = dict(zip(self.input_names, arrays, strict=True))
        output_of = dict(zip(self.output_names, outputs, strict=True))
        for buffer in kernel.buffers:
            if buffer.of in output_of:
                memory.add(buffer.name, *output_of[buffer.of], _OUTPUT)
            elif buffer.part == "data":
                array = array_of[buffer.of]
                memory.add(buffer.name, array.data, array.known, _INPUT)
            else:
                table = _table(array_of[buffer.of], buffer.part)
                known = np.ones(table.nbytes, np.uint8)
                memory.add(buffer.name, table, known, _TABLE)
        return memory


def _table(array: operands.Operand, part: str) -> np.ndarray:
    if part == "shape":
        return np.array(array.shape, np.int32)
    if part == "strides":
        return np.array(array.strides, np.int64)
    return np.array([len(array.shape)], np.int32)


def _refused(
    kernel: Kernel, grid: Sequence[int], size: Sequence[int], emulation: Emulation
) -> list[Finding]:
    """Launches that MLX or the device would not accept."""
    threads = int(np.prod(size))
    reasons = []
    if min(grid) < 1 or threads < 1:
        reasons.append(f"grid {tuple(grid)} and threadgroup {tuple(size)} are empty")
    limit = min(emulation.thread_limit, MOST_THREADS)
    if threads > limit:
        reasons.append(
            f"Thread group size ({threads}) is greater than the maximum allowed "
            f"threads per threadgroup ({limit})"
        )
    if len(kernel.buffers) > MOST_BUFFERS:
        reasons.append(
            f"{len(kernel.buffers)} buffers, shapes and strides included; a kernel "
            f"has at most {MOST_BUFFERS}"
        )
    return [Finding("launch-limit", reason) for reason in reasons]


def _run(
    kernel: Kernel,
    memory: _Memory,
    grid: Sequence[int],
    size: Sequence[int],
    emulation: Emulation,
) -> tuple[list[Finding], dict[str, Traffic]]:
    library = building.build(translation_unit(kernel))
    buffers = memory.structures(emulation.holes)
    found = (_Finding * _MOST_FINDINGS)()
    launch = _Launch(
        grid=(ctypes.c_uint32 * 3)(*grid),
        threadgroup=(ctypes.c_uint32 * 3)(*size),
        seed=emulation.seed,
        reduction_order=REDUCTIONS.index(emulation.reduction),
        step_limit=emulation.step_limit,
        threadgroup_bytes_limit=emulation.threadgroup_bytes,
        cache_lines=emulation.cache_bytes // CACHE_LINE,
        buffers=buffers,
        buffer_count=len(buffers),
        findings=found,
    )
    count = building.load(library).emu_run(ctypes.byref(launch))
    lines = kernel.text.splitlines()
    findings = []
    for raw in found[:count]:
        line = raw.line or building.line_of(library, raw.pc)
        code = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        text = raw.text.decode("utf-8", "replace")
        earlier = building.line_of(library, raw.other_pc)
        if earlier:
            text += f" (the earlier access is in line {earlier})"
        findings.append(Finding(raw.kind.decode(), text, line, code))
    return findings, {
        b.name.decode(): Traffic(
            b.bytes_read, b.bytes_fetched, b.bytes_written, b.bytes_moved
        )
        for b in buffers
        if b.role != _TABLE
    }
