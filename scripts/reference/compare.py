# SPDX-License-Identifier: Apache-2.0
"""Generate greedily with splashpy and with dflash 0.1.0 from the same checkpoints.

Makes tiny random pairs of a Qwen3 target and a drafter, runs both programs from their
first to their last cycle, and compares the emitted tokens, the tokens every cycle
committed and the tokens every cycle drafted; exit 1 where they differ. Greedy text
does not depend on the drafter, so it is the drafts that show whether the drafters are
the same.

Near the end dflash drafts one token more than can be used. A block of another length
drafts other tokens, so cycles are compared up to there and the text to its end.
Windows are longer than the text: in a full window dflash's rotating cache hides wrong
rows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import original
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models import qwen3
from mlx_lm.utils import load_model

from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.drafter import Proposal
from splashpy.engine.generation import generate
from splashpy.engine.request import GenerationRequest, TokensCommitted
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.dflash2_load import load_drafter
from splashpy.models.dflash2_parse import parse_config
from splashpy.models.loading import load_target
from splashpy.verification.sampling import SamplingParams

TOKENS = 64
PROMPT = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8)
VOCAB = 16  # so few that a random drafter is right now and then
TARGET: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
DRAFTER: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "num_target_layers": 4,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "dflash_config": {
        "block_size": 8,
        "mask_token_id": VOCAB - 1,
        "target_layer_ids": [0, 1, 3],
    },
}
SELECTOR = {
    "conv_kernel_size": 2,
    "conv_group_size": 16,
    "selector_rank": 8,
    "selector_top_k": 4,
}


@dataclass
class Text:
    """What one program wrote: tokens per cycle and drafts per cycle."""

    cycles: list[list[int]] = field(default_factory=list)
    drafts: list[list[int]] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        """Everything written."""
        return [token for cycle in self.cycles for token in cycle]


def main() -> None:
    same = True
    for name, top, version in (
        ("DFlash", {}, 1),
        ("DFlash, one sliding layer", sliding(1), 1),
        ("DFlash 2", {"is_causal": False}, 2),
        ("DFlash 2, sliding layers", {"is_causal": False, **sliding(2)}, 2),
        ("DFlash 2, causal blocks", {"is_causal": True}, 2),
    ):
        for seed in range(4):
            same &= compare(f"{name}, seed {seed}", top, version, seed)
    if not same:
        sys.exit("splashpy and dflash differ")


def sliding(layers: int) -> dict[str, Any]:
    kinds = ["sliding_attention"] * layers + ["full_attention"] * (2 - layers)
    return {"sliding_window": 256, "layer_types": kinds}


def compare(name: str, top: dict[str, Any], version: int, seed: int) -> bool:
    raw = {**DRAFTER, **top, "dflash_config": dict(DRAFTER["dflash_config"])}
    raw["architectures"] = ["DFlash2DraftModel" if version == 2 else "DFlashDraftModel"]
    if version == 2:
        raw["dflash_config"] |= SELECTOR
    with TemporaryDirectory() as directory:
        pair = Path(directory)
        target = qwen3.Model(qwen3.ModelArgs.from_dict(TARGET))
        write(pair / "target", TARGET, target, seed)
        drafter = DFlashNetwork(parse_config(raw, "drafter"))
        write(pair / "drafter", raw, drafter, seed + 100)
        ours, theirs = write_with_splashpy(pair), write_with_dflash(pair)
    full = equally_long(ours.drafts, theirs.drafts)
    texts = ours.tokens == theirs.tokens and len(ours.tokens) == TOKENS
    # The first entry of cycles is the token of the prefill.
    cycles = ours.cycles[: full + 1] == theirs.cycles[: full + 1]
    drafts = ours.drafts[:full] == theirs.drafts[:full]
    accepted = len(ours.tokens) - len(ours.cycles)
    print(
        f"{name:34} text {verdict(texts)}; cycles {verdict(cycles)} and drafts "
        f"{verdict(drafts)} in the first {full} of {len(theirs.drafts)} cycles; "
        f"{accepted} drafts accepted"
    )
    return texts and cycles and drafts


def equally_long(ours: list[list[int]], theirs: list[list[int]]) -> int:
    """How many cycles pass before the blocks of the two programs differ in length."""
    pairs = zip(ours, theirs, strict=False)
    return next(i for i, (a, b) in enumerate(pairs) if len(a) != len(b))


def verdict(same: bool) -> str:  # noqa: FBT001
    return "equal" if same else "DIFFERS"


def write(directory: Path, raw: dict[str, Any], network: nn.Module, seed: int) -> None:
    """A checkpoint with random weights from a fixed key."""
    keys: Iterator[mx.array] = iter(mx.random.split(mx.random.key(seed), 500))
    network.update(
        tree_map(
            lambda a: (
                mx.random.normal(a.shape, key=next(keys)) * 0.2
                if a.ndim > 1
                else 1 + 0.1 * mx.random.normal(a.shape, key=next(keys))
            ),
            network.parameters(),
        )
    )
    weights: Any = tree_flatten(network.parameters())
    directory.mkdir()
    mx.save_safetensors(str(directory / "model.safetensors"), dict(weights))
    (directory / "config.json").write_text(json.dumps(raw))


def write_with_splashpy(pair: Path) -> Text:
    target = load_target(pair / "target", TARGET, 512, lambda done, total: None)
    network = load_drafter(pair / "drafter", target.facts, dtype=mx.float32)
    text = Text()

    # dflash drafts any token, whatever the checkpoint calls frequent.
    drafter: Any = DFlash2Drafter(network, target, whole_vocabulary=True)
    propose = drafter.propose

    def recorded(*args: Any) -> Proposal:
        proposal = propose(*args)
        text.drafts.append(ids(proposal.token_ids))
        return proposal

    drafter.propose = recorded
    target.tap(drafter.feature_layers)
    request = GenerationRequest(
        id="r",
        token_ids=PROMPT,
        sampling=SamplingParams(),
        seed=0,
        max_new_tokens=TOKENS,
    )
    for event in generate(request, target, drafter, None, cancelled=lambda: False):
        if isinstance(event, TokensCommitted):
            text.cycles.append(list(event.token_ids))
    return text


def ids(tokens: mx.array) -> list[int]:
    found: Any = tokens.tolist()
    return found


def write_with_dflash(pair: Path) -> Text:
    target, _ = load_model(pair / "target")
    drafter = original.load_drafter(pair / "drafter")
    text = Text()
    if hasattr(drafter, "candidate_selector"):
        select = drafter.propose

        def recorded(*args: Any, **kwargs: Any) -> Any:
            found = select(*args, **kwargs)
            text.drafts.append(ids(found[0][0]))
            return found

        drafter.propose = recorded
    else:
        compute = drafter.compute_logits

        def recorded_logits(hidden: mx.array) -> mx.array:
            logits = compute(hidden)
            text.drafts.append(ids(mx.argmax(logits[0], axis=-1)))
            return logits

        drafter.compute_logits = recorded_logits
    for response in original.package.stream_generate(
        target, drafter, original.NoText(), mx.array(PROMPT), max_tokens=TOKENS
    ):
        if response.tokens:
            text.cycles.append(list(response.tokens))
    return text


if __name__ == "__main__":
    main()
