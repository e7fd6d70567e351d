# SPDX-License-Identifier: Apache-2.0
"""The least a kernel must move and compute, and how long a chip needs for it.

Bytes are counted once for every input and every output; what a kernel moves more than
that is its own doing. Floating-point operations count a multiplication and an addition
as two. Time is the larger of bytes over bandwidth and operations over rate, as if they
overlapped perfectly: no run is faster, and a good one reaches three quarters of it.

Bandwidths are Apple's own figures. Rates are those of the vector units in float32,
which are theory: public lists differ by a tenth. Sheets give "Max" chips two bins, told
apart by their GPU cores.

Shapes: M rows, N outputs, K inputs, D channels, S keys, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

_SCALES = 4  # bytes of a group's scale and bias in 16 bits


@dataclass(frozen=True, slots=True)
class Work:
    """What must be moved and computed.

    Attributes:
        bytes: read and written.
        flops: floating-point operations.
    """

    bytes: int = 0
    flops: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.bytes + other.bytes, self.flops + other.flops)

    def __mul__(self, times: int) -> Work:
        return Work(self.bytes * times, self.flops * times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """Gated DeltaNet layers of a model."""

    layers: int
    key_heads: int
    value_heads: int
    key_width: int
    value_width: int
    taps: int

    @property
    def channels(self) -> int:
        """Of the convolution."""
        keys = 2 * self.key_heads * self.key_width
        return keys + self.value_heads * self.value_width


@dataclass(frozen=True, slots=True)
class Chip:
    """One chip, or one bin of it.

    Attributes:
        name: as the device calls itself, without "Apple ".
        cores: most GPU cores of this bin.
        bandwidth: bytes per second.
        rate: floating-point operations per second.
    """

    name: str
    cores: int
    bandwidth: float
    rate: float

    def seconds(self, work: Work) -> float:
        """The time below which no run can be."""
        return max(work.bytes / self.bandwidth, work.flops / self.rate)


def _chips(*rows: tuple[str, int, float, float]) -> tuple[Chip, ...]:
    return tuple(Chip(n, c, gb * 1e9, tflops * 1e12) for n, c, gb, tflops in rows)


CHIPS = _chips(
    ("M1", 8, 68, 2.6),
    ("M1 Pro", 16, 200, 5.2),
    ("M1 Max", 32, 400, 10.4),
    ("M1 Ultra", 64, 800, 20.8),
    ("M2", 10, 100, 3.6),
    ("M2 Pro", 19, 200, 6.8),
    ("M2 Max", 38, 400, 13.6),
    ("M2 Ultra", 76, 800, 27.2),
    ("M3", 10, 102, 4.1),
    ("M3 Pro", 18, 150, 7.4),
    ("M3 Max", 30, 307, 11.0),
    ("M3 Max", 40, 410, 14.3),
    ("M3 Ultra", 80, 819, 28.0),
    ("M4", 10, 120, 4.3),
    ("M4 Pro", 20, 273, 8.6),
    ("M4 Max", 32, 410, 13.7),
    ("M4 Max", 40, 546, 17.0),
    ("M5", 10, 153, 4.0),
    ("M5 Pro", 20, 307, 8.0),
    ("M5 Max", 32, 460, 13.0),
    ("M5 Max", 40, 614, 16.0),
)


def find_chip(device: str, cores: int = 0) -> Chip | None:
    """The chip of a device's name, and of its GPU cores where two bins share it."""
    name = device.removeprefix("Apple ").strip()
    bins = [chip for chip in CHIPS if chip.name == name]
    fitting = [chip for chip in bins if chip.cores >= cores]
    return fitting[0] if fitting else bins[-1] if bins else None


def matrix(
    rows: int, outputs: int, inputs: int, bits: int, group: int, item: int = 2
) -> Work:
    """Rows times a quantized matrix, or one of 16 bits where ``bits`` is 16."""
    scales = 0 if bits >= 16 else outputs * inputs // group * _SCALES
    weights = outputs * inputs * bits // 8 + scales
    activations = rows * (inputs + outputs) * item
    return Work(weights + activations, 2 * rows * outputs * inputs)


def gated(
    rows: int, outputs: int, inputs: int, bits: int, group: int, item: int = 2
) -> Work:
    """Two products of the same rows and what makes one row of them."""
    both = matrix(rows, 2 * outputs, inputs, bits, group, item)
    return Work(both.bytes - rows * outputs * item, both.flops + 4 * rows * outputs)


def attention(
    rows: int, heads: int, groups: int, width: int, length: int, item: int = 2
) -> Work:
    """Rows of H heads over S keys of G heads; ``item`` 1 counts 8-bit keys."""
    cached = 2 * groups * length * width * item
    if item == 1:
        cached += 2 * groups * length * width // 64 * _SCALES
    return Work(
        cached + 2 * rows * heads * width * 2, 4 * rows * heads * width * length
    )


def delta_prework(rows: int, channels: int, taps: int, item: int = 2) -> Work:
    """Projections to queries, keys and values; the window goes on."""
    window = (taps - 1) * channels
    numbers = 2 * window + 3 * rows * channels + channels * taps
    return Work(numbers * item, rows * channels * (2 * taps + 12))


def delta_verify(rows: int, delta: Delta, item: int = 2, *, old_rows: int = 0) -> Work:
    """A block on a state; the state before it is read and written once."""
    values = delta.value_heads * delta.value_width
    keys = delta.key_heads * delta.key_width
    state = values * delta.key_width
    row = keys + values + 2 * delta.value_heads
    moved = (rows + old_rows) * row + rows * (keys + values)
    return Work(2 * state * 4 + moved * item, (8 * rows + 6 * old_rows) * state)


def add_rms_norm(rows: int, channels: int, item: int = 2) -> Work:
    """Two rows in, two out, and a weight."""
    return Work((4 * rows + 1) * channels * item, 6 * rows * channels)


def convolution(
    rows: int, channels: int, taps: int, group: int, item: int = 2, *, finish: bool
) -> Work:
    """One side; the corrections of this side only, and with ``finish`` the stream."""
    numbers = rows * (2 * channels + taps * channels // group) + taps * channels
    if finish:
        numbers += (2 * rows + 1) * channels
    return Work(numbers * item, rows * channels * (3 * taps + (6 if finish else 0)))


def top_tokens(rows: int, vocab: int, count: int, item: int = 4) -> Work:
    """Logits in, tokens and values out."""
    return Work(rows * vocab * item + rows * count * 8, rows * vocab)


def selector(slots: int, vocab: int, count: int, rank: int, item: int = 4) -> Work:
    """Logits in and a path out, with the rows of both codebooks a walk reaches."""
    codebooks = slots * (count + 1) * rank * 2
    gates = slots * rank * 2
    return Work(
        slots * vocab * item + codebooks + gates + slots * 4,
        slots * vocab + slots * count * rank * 3,
    )


def share_of_limit(chip: Chip, work: Work, seconds: float) -> float:
    """How much of the chip's limit a run reached, 0 to 1."""
    return chip.seconds(work) / seconds if seconds > 0 else 0.0
