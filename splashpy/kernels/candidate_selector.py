# SPDX-License-Identifier: Apache-2.0
"""DFlash 2's choice of one path through the best candidates of consecutive slots.

Every slot has its own C best tokens. A token's score is its own logit plus how well it
follows the token chosen one slot earlier: a sum over R products of the predecessor's
codebook row, the slot's gate and the successor's codebook row. All scores between
neighbouring candidates are computed at once; the walk then only picks rows.

Candidates are ordered by logit, equal logits by id, and equal scores go to the first
candidate, so the path is the same on every device.

As kernels this is two launches: the largest logits of every shard of the vocabulary
(``top_tokens.py``), then one threadgroup that merges them and walks. It scores only the
transitions from tokens the walk reaches.

Shapes: K slots, V vocabulary, C candidates, R selector rank.
Source: ``CandidateSelector.select`` in dflash 0.1.0, model_mlx.py (MIT), with sums in
float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from splashpy.kernels import gate, metal
from splashpy.kernels.top_tokens import top_shards, top_tokens

_MOST_SLOTS = 15
_MOST_COUNT = 32  # a lane per candidate
_WALK_THREADS = 512


@dataclass(frozen=True, slots=True)
class Lattice:
    """Scores between neighbouring candidates.

    Attributes:
        first: [C] float32, scores of slot 0 after the anchor.
        following: [K - 1, C, C] float32; entry [s, a, b] is the score of candidate b
            of slot s + 1 after candidate a of slot s.
    """

    first: mx.array
    following: mx.array

    def row(self, slot: int, previous: mx.array | None) -> mx.array:
        """Scores of a slot's candidates after the one chosen before, [C]."""
        return self.first if previous is None else self.following[slot - 1, previous]


@dataclass(frozen=True, slots=True)
class Selector:
    """What a drafter brings to the choice.

    Attributes:
        predecessor: [V, R] codebook of the token before.
        successor: [V, R] codebook of the token after.
        count: C.
        multiplier: of the head's logits.
        softcap: bound the multiplied logits approach; None leaves them.
        tokens: [M] int32, the token of every row of a restricted head; None where row
            and token agree.
    """

    predecessor: mx.array
    successor: mx.array
    count: int
    multiplier: float = 1.0
    softcap: float | None = None
    tokens: mx.array | None = None

    def scaled(self, logits: mx.array) -> mx.array:
        """The logits as the drafter was trained to read them; monotone."""
        logits = logits * self.multiplier
        cap = self.softcap
        return logits if cap is None else cap * mx.tanh(logits / cap)


def best_path(
    selector: Selector,
    logits: mx.array,
    gates: mx.array,
    anchor: mx.array,
    *,
    look_ahead: bool = False,
) -> mx.array:
    """The path a greedy drafter proposes.

    Args:
        selector: codebooks and scale.
        logits: [K, M] of the head, any float dtype.
        gates: [K, R] projected hidden rows.
        anchor: [] int32, the token before slot 0.
        look_ahead: choose by the expected number of accepted tokens instead of slot
            by slot.

    Returns:
        [K] int32 token ids.
    """
    memory = _look_ahead_bytes(logits.shape[0], selector.count) if look_ahead else 0
    if memory <= metal.THREADGROUP_BYTES and _eligible(selector, logits, gates):
        return _walk_metal(selector, logits, gates, anchor, look_ahead=look_ahead)
    lattice, candidates = lattice_of(selector, logits, gates, anchor)
    path = (walk_look_ahead if look_ahead else walk_greedy)(lattice)
    return _chosen(candidates, path)


def drawn_path(
    selector: Selector,
    logits: mx.array,
    gates: mx.array,
    anchor: mx.array,
    temperature: mx.array,
    noise: mx.array,
) -> tuple[mx.array, mx.array, mx.array]:
    """A path drawn slot by slot.

    Args:
        selector: codebooks and scale.
        logits: [K, M] of the head, any float dtype.
        gates: [K, R] projected hidden rows.
        anchor: [] int32, the token before slot 0.
        temperature: [] float32, above 0.
        noise: Gumbel noise, [K, C] of the candidates or [K, V] of the tokens.

    Returns:
        [K] int32 token ids; [K, C] int32, the candidates; [K, C] float32, the
        distribution each token was drawn from.
    """
    if _eligible(selector, logits, gates):
        return _draw_metal(selector, logits, gates, anchor, temperature, noise)
    lattice, candidates = lattice_of(selector, logits, gates, anchor)
    if noise.shape[1] != selector.count:
        noise = mx.take_along_axis(noise, candidates, axis=-1)
    path, probs = walk_sampled(lattice, temperature, noise)
    return _chosen(candidates, path), candidates, probs


def lattice_of(
    selector: Selector, logits: mx.array, gates: mx.array, anchor: mx.array
) -> tuple[Lattice, mx.array]:
    """The candidates of every slot and their scores, for a walk of one's own.

    Args:
        selector: codebooks and scale.
        logits: [K, M] of the head, any float dtype.
        gates: [K, R] projected hidden rows.
        anchor: [] int32, the token before slot 0.

    Returns:
        The scores, and [K, C] int32 token ids.
    """
    places, raw = top_tokens(logits, selector.count)
    candidates = places if selector.tokens is None else selector.tokens[places]
    lattice = build_lattice(
        selector.scaled(raw),
        candidates,
        mx.minimum(anchor, selector.successor.shape[0] - 1),
        gates,
        (selector.predecessor, selector.successor),
    )
    return lattice, candidates


def _chosen(candidates: mx.array, path: mx.array) -> mx.array:
    return mx.take_along_axis(candidates, path[:, None], axis=-1)[:, 0]


def build_lattice(
    unary: mx.array,
    candidates: mx.array,
    anchor: mx.array,
    gate: mx.array,
    codebooks: tuple[mx.array, mx.array],
) -> Lattice:
    """Scores of all transitions.

    score_s(a, b) = unary[s,b] + sum over r of P[a,r] * gate[s,r] * S[b,r].

    Args:
        unary: [K, C] float32 logits of the candidates.
        candidates: [K, C] int32 ids.
        anchor: [] int32, the token before slot 0.
        gate: [K, R] projected hidden rows.
        codebooks: predecessor P and successor S, each [V, R].

    Raises:
        ValueError: the shapes do not agree.
    """
    slots, count = unary.shape
    predecessor, successor = codebooks
    if candidates.shape != unary.shape or gate.shape != (slots, successor.shape[1]):
        raise ValueError(
            f"{slots} slots of {count} candidates need ids {unary.shape} and a gate "
            f"{(slots, successor.shape[1])}, got {candidates.shape} and {gate.shape}"
        )
    after = successor[candidates].astype(mx.float32)
    weights = gate.astype(mx.float32)[:, None, :]
    first = weights[0] * predecessor[anchor[None]].astype(mx.float32)
    before = weights[1:] * predecessor[candidates[:-1]].astype(mx.float32)
    return Lattice(
        first=unary[0] + (first @ after[0].T)[0],
        following=unary[1:, None, :] + before @ after[1:].swapaxes(1, 2),
    )


def walk_greedy(lattice: Lattice) -> mx.array:
    """Take the best candidate after the one taken before.

    Returns:
        [K] int32, the index of the candidate chosen in every slot.
    """
    path: list[mx.array] = []
    for slot in range(lattice.following.shape[0] + 1):
        path.append(mx.argmax(lattice.row(slot, path[-1] if path else None)))
    return mx.stack(path).astype(mx.int32)


def walk_look_ahead(lattice: Lattice) -> mx.array:
    """Take the path with the largest expected number of accepted tokens.

    The softmax of a slot's scores stands for the chance that a candidate is accepted:
    V_s(a) = max over b of q_s(b | a) * (1 + V_{s+1}(b)), with nothing after the last
    slot. Deterministic, so its path is a point mass.

    Returns:
        [K] int32, the index of the candidate chosen in every slot.
    """
    ahead = mx.zeros_like(lattice.first)
    best_after: list[mx.array] = []
    for scores in [*reversed(list(lattice.following)), lattice.first[None]]:
        expected = mx.softmax(scores, axis=-1) * (1 + ahead)
        best_after.append(mx.argmax(expected, axis=-1))
        ahead = expected.max(axis=-1)
    path = [best_after.pop()[0]]
    while best_after:
        path.append(best_after.pop()[path[-1]])
    return mx.stack(path).astype(mx.int32)


def walk_sampled(
    lattice: Lattice, temperature: float | mx.array, noise: mx.array
) -> tuple[mx.array, mx.array]:
    """Draw every candidate from softmax(score / temperature) after the one before.

    Args:
        lattice: the scores.
        temperature: above 0.
        noise: [K, C] Gumbel noise of every candidate.

    Returns:
        [K] int32, the index of the candidate drawn in every slot, and [K, C] float32,
        the distribution each was drawn from.
    """
    path: list[mx.array] = []
    probs: list[mx.array] = []
    for slot in range(lattice.following.shape[0] + 1):
        scores = lattice.row(slot, path[-1] if path else None)
        # Relative to the best, so that a tiny temperature leaves room for the noise.
        scores = (scores - scores.max()) / temperature
        path.append(mx.argmax(scores + noise[slot]))
        probs.append(mx.softmax(scores))
    return mx.stack(path).astype(mx.int32), mx.stack(probs)


_SHARED = """
    threadgroup float unary[SLOTS * COUNT];
    threadgroup uint candidates[SLOTS * COUNT];
    const uint lane = thread_index_in_simdgroup;
    const uint simdgroup = simdgroup_index_in_threadgroup;
    gather_candidates_at<SLOTS, COUNT, LISTS, MAPPED>(
        values, ids, tokens, unary, candidates, scale[0], scale[1], SHARDS, VOCAB, lane,
        simdgroup, simdgroups_per_threadgroup);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint first = min(uint(anchor), uint(VOCAB) - 1u);
"""
_INPUTS = (
    *("values", "ids", "tokens", "gates", "predecessor", "successor"),
    *("anchor", "scale"),
)
_WALK = metal.Kernel(
    name="select_walk",
    files=("top_tokens", "candidate_selector"),
    inputs=_INPUTS,
    outputs=("path",),
    body=_SHARED
    + """
    threadgroup float scores[2 * COUNT];
    walk_at<SLOTS, COUNT, RANK, false, false>(
        unary, candidates, scores, gates, predecessor, successor, scale, path, path,
        (device float*)path, 1.0f, first, VOCAB, thread_position_in_threadgroup.x, lane,
        simdgroup, simdgroups_per_threadgroup);
    """,
)
_LOOK_AHEAD = metal.Kernel(
    name="select_look_ahead",
    files=_WALK.files,
    inputs=_INPUTS,
    outputs=("path",),
    body=_SHARED
    + """
    threadgroup float table[COUNT + (SLOTS - 1) * COUNT * COUNT];
    threadgroup float ahead[2 * COUNT];
    threadgroup uint choice[SLOTS * COUNT];
    look_ahead_at<SLOTS, COUNT, RANK>(
        unary, candidates, table, ahead, choice, gates, predecessor, successor, path,
        first, thread_position_in_threadgroup.x, lane, simdgroup,
        simdgroups_per_threadgroup);
    """,
)
_DRAW = metal.Kernel(
    name="select_draw",
    files=_WALK.files,
    inputs=(*_INPUTS, "noise", "temperature"),
    outputs=("path", "offered", "probs"),
    body=_SHARED
    + """
    threadgroup float scores[2 * COUNT];
    walk_at<SLOTS, COUNT, RANK, true, BY_TOKEN>(
        unary, candidates, scores, gates, predecessor, successor, noise, path, offered,
        probs, temperature, first, NOISE_WIDTH, thread_position_in_threadgroup.x, lane,
        simdgroup, simdgroups_per_threadgroup);
    """,
)


def shape_of(selector: Selector, logits: mx.array) -> gate.Shape:
    """What the verdict on a choice is filed under."""
    return *logits.shape, selector.count, selector.successor.shape[1], str(logits.dtype)


def _eligible(selector: Selector, logits: mx.array, gates: mx.array) -> bool:
    slots, rows = logits.shape
    fits = (
        0 < slots <= _MOST_SLOTS
        and selector.count <= min(_MOST_COUNT, rows)
        and gates.shape == (slots, selector.successor.shape[1])
    )
    return fits and gate.allows("candidate_selector", *shape_of(selector, logits))


def _look_ahead_bytes(slots: int, count: int) -> int:
    """Threadgroup memory of the look-ahead kernel: what its body reserves."""
    table = count + (slots - 1) * count * count
    return 4 * (3 * slots * count + table + 2 * count)


def _walk_metal(
    selector: Selector,
    logits: mx.array,
    gates: mx.array,
    anchor: mx.array,
    *,
    look_ahead: bool,
) -> mx.array:
    inputs, template = _operands(selector, logits, gates, anchor)
    kernel = _LOOK_AHEAD if look_ahead else _WALK
    threads = metal.whole_simdgroups(_WALK_THREADS, kernel.name)
    return metal.build(kernel)(
        inputs=inputs,
        template=template,
        grid=(threads, 1, 1),
        threadgroup=(threads, 1, 1),
        output_shapes=[(logits.shape[0],)],
        output_dtypes=[mx.int32],
    )[0]


def _draw_metal(
    selector: Selector,
    logits: mx.array,
    gates: mx.array,
    anchor: mx.array,
    temperature: mx.array,
    noise: mx.array,
) -> tuple[mx.array, mx.array, mx.array]:
    inputs, template = _operands(selector, logits, gates, anchor)
    width = noise.shape[1]
    template += [("BY_TOKEN", width != selector.count), ("NOISE_WIDTH", width)]
    threads = metal.whole_simdgroups(_WALK_THREADS, _DRAW.name)
    offered = (logits.shape[0], selector.count)
    path, candidates, probs = metal.build(_DRAW)(
        inputs=[*inputs, noise, temperature.astype(mx.float32)],
        template=template,
        grid=(threads, 1, 1),
        threadgroup=(threads, 1, 1),
        output_shapes=[(logits.shape[0],), offered, offered],
        output_dtypes=[mx.int32, mx.int32, mx.float32],
    )
    return path, candidates, probs


def _operands(
    selector: Selector, logits: mx.array, gates: mx.array, anchor: mx.array
) -> tuple[list[mx.array], list[tuple[str, int]]]:
    """Inputs and template values that all walks share; launches the shards."""
    shards = top_shards(logits, selector.count)
    mapped = selector.tokens is not None
    tokens = selector.tokens if selector.tokens is not None else mx.zeros(1, mx.int32)
    scale = mx.array([selector.multiplier, selector.softcap or 0.0])
    vocab, rank = selector.successor.shape
    inputs = [
        *(shards.values, shards.ids, tokens, gates),
        *(selector.predecessor, selector.successor, anchor, scale),
    ]
    template = [
        ("SLOTS", logits.shape[0]),
        ("COUNT", selector.count),
        ("LISTS", shards.lists),
        ("MAPPED", mapped),
        ("SHARDS", shards.count),
        ("VOCAB", vocab),
        ("RANK", rank),
    ]
    return inputs, template
