# SPDX-License-Identifier: Apache-2.0
"""Which drafters were published for a target, told from what the target is.

A drafter belongs to one target: same width, depth and vocabulary, since it reads the
target's layers and borrows its head. Two generations of a model may agree in all of
these; then every drafter that fits is named, and only its makers can say for which
weights it was trained. Names of repositories or directories decide nothing.

Source: the configurations and model cards of these repositories in September 2026. A
depth marked as derived follows from the rule by which the drafter's layers were chosen:
the last one read is the third from the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from splashpy.errors import PairError


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDrafter:
    """A drafter and the target it was made for.

    Attributes:
        repo: where it is; empty when it is known by its target only.
        made_for: the target's published name.
        version: 1 or 2 of DFlash.
        licence: of the drafter; empty when its model card must be read.
        model_types: architecture names of the target; empty when not known.
        hidden_size, num_layers: of the target.
        vocab_size: of the target; None when not known.
    """

    repo: str = ""
    made_for: str
    version: Literal[1, 2]
    licence: str = ""
    model_types: tuple[str, ...]
    hidden_size: int
    num_layers: int
    vocab_size: int | None = None

    def fits(self, target: TargetSizes) -> bool:
        """Whether everything that is known agrees."""
        return (
            (not self.model_types or target.model_type in self.model_types)
            and self.hidden_size == target.hidden_size
            and self.num_layers == target.num_layers
            and self.vocab_size in (None, target.vocab_size)
        )


@dataclass(frozen=True, slots=True)
class TargetSizes:
    """What a target's configuration says about it."""

    model_type: str
    hidden_size: int
    num_layers: int
    vocab_size: int

    def __str__(self) -> str:
        return (
            f"{self.model_type} of width {self.hidden_size} with {self.num_layers} "
            f"layers and {self.vocab_size} tokens"
        )


PUBLISHED: tuple[PublishedDrafter, ...] = (
    PublishedDrafter(
        repo="incoai/Qwen3.8-27B-DFlash2",
        made_for="Qwen3.8-27B",
        version=2,
        licence="Apache-2.0",
        model_types=("qwen3_5",),
        hidden_size=5120,
        num_layers=64,
        vocab_size=248320,
    ),
    PublishedDrafter(
        repo="incoai/Muse-Glimmer-30B-DFlash2",
        made_for="Muse-Glimmer-30B",
        version=2,
        model_types=("muse_glimmer",),
        hidden_size=6656,
        num_layers=52,
        vocab_size=202048,
    ),
    PublishedDrafter(
        repo="incoai/GLM-5.3-Flash-DFlash2",
        made_for="GLM-5.3-Flash",
        version=2,
        licence="CC-BY-NC-ND-4.0",
        model_types=(),
        hidden_size=4096,
        num_layers=45,
        vocab_size=154880,
    ),
    PublishedDrafter(
        repo="incoai/Qwen3.6-35B-A3B-DFlash2",
        made_for="Qwen3.6-35B-A3B",
        version=2,
        model_types=("qwen3_5_moe",),
        hidden_size=2048,
        num_layers=40,  # derived
        vocab_size=248320,
    ),
    PublishedDrafter(
        repo="incoai/GLM-5.3-DFlash2",
        made_for="GLM-5.3",
        version=2,
        model_types=("glm_moe_dsa",),
        hidden_size=6144,
        num_layers=78,
        vocab_size=154880,
    ),
    PublishedDrafter(
        repo="z-lab/Qwen3-4B-DFlash-b16",
        made_for="Qwen3-4B",
        version=1,
        model_types=("qwen3",),
        hidden_size=2560,
        num_layers=36,
        vocab_size=151936,
    ),
    PublishedDrafter(
        repo="z-lab/Qwen3-8B-DFlash-b16",
        made_for="Qwen3-8B",
        version=1,
        model_types=("qwen3",),
        hidden_size=4096,
        num_layers=36,
        vocab_size=151936,
    ),
    PublishedDrafter(
        made_for="Qwen3.5-4B",
        version=1,
        model_types=("qwen3_5",),
        hidden_size=2560,
        num_layers=32,
    ),
    PublishedDrafter(
        made_for="Qwen3.5-35B-A3B",
        version=1,
        model_types=("qwen3_5_moe",),
        hidden_size=2048,
        num_layers=40,  # derived
    ),
    PublishedDrafter(
        made_for="Qwen3.6-27B",
        version=1,
        model_types=("qwen3_5",),
        hidden_size=5120,
        num_layers=64,  # derived
    ),
    PublishedDrafter(
        made_for="LongCat",
        version=1,
        model_types=("longcat_flash",),
        hidden_size=6144,
        num_layers=28,  # derived
    ),
    PublishedDrafter(
        made_for="LFM2.5-1.2B",
        version=1,
        model_types=("lfm2",),
        hidden_size=2048,
        num_layers=16,  # derived
    ),
    PublishedDrafter(
        made_for="Qwen2.5-0.5B",
        version=1,
        model_types=("qwen2",),
        hidden_size=896,
        num_layers=24,  # derived
    ),
)
"""Every drafter of which enough is known to recognize its target."""


def find_drafters(target: TargetSizes) -> Sequence[PublishedDrafter]:
    """The drafters that fit a target, the newest kind first."""
    return [drafter for drafter in PUBLISHED if drafter.fits(target)]


def drafters_for(config: Mapping[str, Any]) -> tuple[PublishedDrafter, ...]:
    """The drafters that fit the target of a config.json; none when sizes are missing.

    Args:
        config: parsed; sizes of a multimodal model are in its ``text_config``.
    """
    text = config.get("text_config")
    sizes = text if isinstance(text, Mapping) and "hidden_size" in text else config
    keys = ("hidden_size", "num_hidden_layers", "vocab_size")
    numbers = [value for key in keys if type(value := sizes.get(key)) is int]
    if len(numbers) < len(keys):
        return ()
    target = TargetSizes(str(config.get("model_type", "")), *numbers)
    return tuple(find_drafters(target))


def only_drafter(config: Mapping[str, Any], base_model: str = "") -> PublishedDrafter:
    """The one drafter that was published for a target of this config.json.

    Args:
        config: as for ``drafters_for``.
        base_model: repository the target's model card names as what it was made from.
            It decides between drafters that fit alike.

    Raises:
        PairError: there is none, its repository is not known, or several fit and
            nothing tells which was trained for these weights.
    """
    found = drafters_for(config)
    if len(found) > 1:
        name = base_model.rpartition("/")[2].lower()
        named = tuple(item for item in found if item.made_for.lower() == name)
        found = named or found
    if len(found) == 1 and found[0].repo:
        return found[0]
    fitting = ", ".join(drafter.repo or drafter.made_for for drafter in found)
    raise PairError(
        "which drafter belongs to this target is not known",
        why=f"published for these sizes: {fitting}"
        if found
        else "no published drafter has its architecture and sizes",
        fix=["name DRAFT: a directory, a GGUF file or OWNER/REPO"],
    )


def describe(drafter: PublishedDrafter, target: TargetSizes) -> str:
    """One sentence: which drafter, under which licence, and why it fits."""
    kind = "DFlash 2" if drafter.version == 2 else "DFlash"
    licence = drafter.licence or "licence: see its card"
    name = drafter.repo or "a drafter whose repository is not known here"
    return f"{name} ({kind}, {licence}), made for {drafter.made_for}: also {target}"
