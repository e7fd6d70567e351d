# SPDX-License-Identifier: Apache-2.0
"""Bugs of real kernels, each planted into one of the correct ones.

The emulator is worth what it finds: every row must be reported under every seed, and
the kernel without the bug must pass (``test_correct_kernels.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from msl.cases import CASES, Case


@dataclass(frozen=True, slots=True)
class Bug:
    """One change that makes a correct kernel wrong.

    Attributes:
        case: kernel of :data:`msl.cases.CASES`.
        right: text that is replaced.
        wrong: what it becomes.
        kinds: findings of which at least one must appear; where the order of lanes
            decides which fault shows first, there are two.
        says: pattern that one of these findings contains.
    """

    case: str
    right: str
    wrong: str
    kinds: frozenset[str]
    says: str

    def planted(self) -> Case:
        """The kernel with the bug."""
        return CASES[self.case].replaced(self.right, self.wrong)


def _bug(case: str, right: str, wrong: str, kinds: str, says: str) -> Bug:
    return Bug(case, right, wrong, frozenset(kinds.split()), says)


FIRST_BARRIER = """part[i] = x[row * 128 + i];
        threadgroup_barrier(mem_flags::mem_threadgroup);"""
EACH_ROUND = "threadgroup_barrier(mem_flags::mem_threadgroup);  // each round"
GUARD = "if (i >= uint(x_shape[0])) return;"
STORE = "out[i] = scaled[0] + scaled[1];"
UNORDERED = "race uninitialised-read"

BUGS = {
    # bounds
    "no guard for the last threadgroup": _bug(
        "elementwise", GUARD, "x_shape;", "out-of-bounds", "'x', which has 200 bytes"
    ),
    "an index before the first element": _bug(
        "elementwise",
        "{x[i], y[i]}",
        "{x[int(i) - 1], y[i]}",
        "out-of-bounds",
        r"thread \(0,0,0\) of threadgroup \(0,0,0\) reads 4 bytes at byte -4",
    ),
    "a write after the last element": _bug(
        "elementwise", STORE, "out[i + 1] = 0;", "out-of-bounds", "writes .* 'out'"
    ),
    "a far too large index": _bug(
        "elementwise",
        "{x[i], y[i]}",
        "{x[i * 100000000], y[i]}",
        "out-of-bounds",
        "reads 4 bytes far from every buffer",
    ),
    "an element after a scalar": _bug(
        "elementwise", "*= scale", "*= (&scale)[1]", "out-of-bounds", "input 'scale'"
    ),
    "a small constant input read too far": _bug(
        "rms_norm", "eps[0]", "eps[1]", "out-of-bounds", "'eps', which has 4 bytes"
    ),
    "16-bit numbers read as 32-bit ones": _bug(
        "rms_norm",
        "float(x[at])",
        "((const device float*)x)[at]",
        "out-of-bounds",
        "'x', which has 640 bytes",
    ),
    "a thread's own array overrun": _bug(
        "elementwise", "j < 2", "j < 3", "out-of-bounds", "index 2 of a shorter array"
    ),
    "threadgroup memory overrun": _bug(
        "threadgroup_sum",
        "part[128]",
        "part[127]",
        "out-of-bounds",
        "threadgroup memory 'part'|index 127 of a shorter array",
    ),
    "a tile with too few columns": _bug(
        "transpose",
        "tile[8][9]",
        "tile[8][7]",
        "out-of-bounds",
        "index 7 of a shorter array",
    ),
    "a vector stored after the end": _bug(
        "dequantize",
        "to[1] = high",
        "to[i + 1] = high",
        "out-of-bounds race",
        "writes 16 bytes at byte 512 of output 'out'|output 'out'",
    ),
    "a vector loaded after the end": _bug(
        "dequantize",
        "packed[i], low",
        "((const device uint4*)packed)[i].x, low",
        "out-of-bounds",
        "'packed', which has 64 bytes",
    ),
    "a matrix loaded with the wrong stride": _bug(
        "matmul", "row * 24 + k, 24)", "row * 24 + k, 25)", "out-of-bounds", "'a'"
    ),
    "one matrix tile too many": _bug(
        "matmul", "k < 24", "k <= 24", "out-of-bounds", "'[ab]', which has 1536"
    ),
    # permission
    "a write to an input": _bug(
        "elementwise",
        STORE,
        "((device float*)x)[i] = 0;",
        "input-write",
        "input 'x', which is read-only",
    ),
    "a write to a shape": _bug(
        "elementwise",
        STORE,
        "((constant int*)x_shape)[0] = 0;",
        "input-write",
        "table 'x_shape'",
    ),
    "an atomic on an input": _bug(
        "histogram",
        "atomic_fetch_add_explicit(&out[lane]",
        "atomic_fetch_add_explicit((device atomic_uint*)&x[lane]",
        "input-write",
        "input 'x'",
    ),
    # initialisation
    "an output that is added to without being set": _bug(
        "elementwise", STORE, STORE.replace("=", "+="), "uninitialised-read", "'out'"
    ),
    "threadgroup counters that are never cleared": _bug(
        "histogram",
        "if (lane < 8) atomic_store_explicit(&local[lane], 0u, memory_order_relaxed);",
        "",
        "uninitialised-read",
        "threadgroup memory 'local'",
    ),
    "strides that are ignored": _bug(
        "strided",
        "x[elem_to_loc(i, x_shape, x_strides, x_ndim)]",
        "x[i]",
        "uninitialised-read",
        "gap between the elements of the strided input",
    ),
    "a hole in the output": _bug(
        "elementwise",
        GUARD,
        "if (i + 1 >= uint(x_shape[0])) return;",
        "unwritten-output",
        "4 of 200 bytes were never written, the first is byte 196",
    ),
    "an output that is forgotten": _bug(
        "neighbours",
        "out[i] = scratch[i ^ 31];",
        "",
        "unwritten-output",
        "'out': 256 of 256",
    ),
    # barriers and races
    "no barrier before the first read": _bug(
        "threadgroup_sum",
        FIRST_BARRIER,
        "part[i] = x[row * 128 + i];",
        UNORDERED,
        "'part'",
    ),
    "no barrier between the rounds": _bug(
        "threadgroup_sum", EACH_ROUND, "", "race", "without a barrier"
    ),
    "a barrier for the wrong memory": _bug(
        "threadgroup_sum",
        EACH_ROUND,
        "threadgroup_barrier(mem_flags::mem_device);",
        "race",
        "without a barrier for this memory",
    ),
    "a barrier that orders no memory": _bug(
        "threadgroup_sum",
        EACH_ROUND,
        "threadgroup_barrier(mem_flags::mem_none);",
        "race",
        "'part'",
    ),
    "device memory behind a threadgroup-memory barrier": _bug(
        "neighbours",
        "mem_flags::mem_device",
        "mem_flags::mem_threadgroup",
        UNORDERED,
        "'scratch'",
    ),
    "a simdgroup barrier where a threadgroup needs one": _bug(
        "threadgroup_sum",
        FIRST_BARRIER,
        FIRST_BARRIER.replace("threadgroup_barrier", "simdgroup_barrier"),
        UNORDERED,
        "'part'",
    ),
    "lanes trusted to run in lock-step": _bug(
        "simdgroup_exchange",
        "simdgroup_barrier(mem_flags::mem_threadgroup);",
        "",
        UNORDERED,
        "lock-step|nobody has written",
    ),
    "a simdgroup barrier that orders no memory": _bug(
        "simdgroup_exchange",
        "simdgroup_barrier(mem_flags::mem_threadgroup);",
        "simdgroup_barrier(mem_flags::mem_none);",
        "race",
        "lock-step",
    ),
    "a value taken from another simdgroup": _bug(
        "simdgroup_exchange", "slot[i ^ 1]", "slot[i ^ 32]", UNORDERED, "'slot'"
    ),
    "a tile read before it is full": _bug(
        "transpose",
        "threadgroup_barrier(mem_flags::mem_threadgroup);",
        "",
        UNORDERED,
        "'tile'",
    ),
    "every lane stores the result": _bug(
        "threadgroup_sum", "if (i == 0) out", "out", "race", "output 'out'"
    ),
    "every lane stores the partial sum": _bug(
        "rms_norm",
        "if (thread_index_in_simdgroup == 0) part",
        "part",
        "race",
        "lock-step",
    ),
    "two threadgroups write one element": _bug(
        "threadgroup_sum",
        "out[row] = part[0]",
        "out[0] = part[0]",
        "race",
        "nothing orders two threadgroups",
    ),
    "a value of another threadgroup": _bug(
        "neighbours", "i ^ 31", "i ^ 63", UNORDERED, "'scratch'"
    ),
    "two simdgroups store one matrix": _bug(
        "matmul",
        "simdgroup_store(sum, out + row * 16",
        "simdgroup_store(sum, out + 0 * 16",
        "race",
        "output 'out'",
    ),
    "a counter that is not atomic": _bug(
        "histogram",
        "atomic_fetch_add_explicit(&out[lane], n, memory_order_relaxed);",
        "((device uint*)out)[lane] += n;",
        "race",
        "output 'out'",
    ),
    # divergence
    "a barrier inside a branch": _bug(
        "threadgroup_sum",
        EACH_ROUND,
        f"if (i < half_way) {EACH_ROUND}",
        "divergence",
        "64 of 128 lanes of the threadgroup; .* has returned",
    ),
    "a return before a barrier": _bug(
        "threadgroup_sum",
        FIRST_BARRIER,
        f"if (i > 100) return; {FIRST_BARRIER}",
        "divergence",
        "101 of 128 lanes of the threadgroup; .* has returned",
    ),
    "two barriers taken for one": _bug(
        "threadgroup_sum",
        FIRST_BARRIER,
        "part[i] = x[row * 128 + i];\n"
        "if (i < 64) threadgroup_barrier(mem_flags::mem_threadgroup);\n"
        "else threadgroup_barrier(mem_flags::mem_threadgroup);",
        "divergence",
        "64 of 128",
    ),
    "a reduction inside a branch": _bug(
        "rms_norm",
        "float sum = simd_sum(value * value);",
        "float sum = 0; if (i % 32 < 21) sum = simd_sum(value * value);",
        "divergence",
        "simd_sum in line [0-9]+ is reached by 21 of 32 lanes of the simdgroup",
    ),
    "two different operations in one simdgroup": _bug(
        "simdgroup_exchange",
        "simd_shuffle(other, 0)",
        "(i % 2 ? simd_sum(other) : simd_max(other))",
        "divergence",
        "16 of 32 lanes",
    ),
    "a matrix product by half a simdgroup": _bug(
        "matmul",
        "simdgroup_multiply_accumulate",
        "if (thread_index_in_simdgroup < 16) simdgroup_multiply_accumulate",
        "divergence",
        "simdgroup_multiply_accumulate .* 16 of 32 lanes",
    ),
    # values
    "a lane that does not exist": _bug(
        "simdgroup_exchange",
        "simd_shuffle(other, 0)",
        "simd_shuffle(other, 32)",
        "invalid-lane",
        "reads lane 32",
    ),
    "a vector store at an odd place": _bug(
        "dequantize",
        "(out + i * 8)",
        "(out + i * 8 - (i & 1))",
        "misaligned",
        "stricter alignment",
    ),
    "a shift by more bits than there are": _bug(
        "dequantize", "(4 * j + 16)", "(8 * j + 16)", "undefined", "shifts by more bits"
    ),
    "a division by zero": _bug(
        "dequantize",
        "scales[i / 4]",
        "scales[i / (packed[i] & 0)]",
        "undefined",
        "divides by zero",
    ),
    "a wait for a value that never comes": _bug(
        "histogram",
        "uint n = atomic_load_explicit(&local[lane], memory_order_relaxed);",
        "uint n = 0; while (n < 1000) "
        "n = atomic_load_explicit(&local[lane], memory_order_relaxed);",
        "no-progress",
        "goes on after",
    ),
    # limits
    "too much threadgroup memory": _bug(
        "threadgroup_sum",
        "part[128]",
        "part[9000]",
        "launch-limit",
        "36000 bytes, the limit is 32768",
    ),
}
