# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from splashpy.errors import PairError
from splashpy.package.published_drafters import (
    PUBLISHED,
    PublishedDrafter,
    TargetSizes,
    describe,
    drafters_for,
    find_drafters,
    only_drafter,
)

QWEN_27B = TargetSizes("qwen3_5", 5120, 64, 248320)


def test_two_generations_of_one_geometry_get_both_drafters() -> None:
    found = find_drafters(QWEN_27B)
    assert [drafter.made_for for drafter in found] == ["Qwen3.8-27B", "Qwen3.6-27B"]


@pytest.mark.parametrize(
    "other",
    [
        TargetSizes("qwen3_5_moe", 5120, 64, 248320),
        TargetSizes("qwen3_5", 4096, 64, 248320),
        TargetSizes("qwen3_5", 5120, 48, 248320),
        TargetSizes("llama", 576, 30, 49152),
    ],
    ids=["architecture", "width", "depth", "demo"],
)
def test_a_target_that_differs_gets_none(other: TargetSizes) -> None:
    assert find_drafters(other) == []


def test_another_vocabulary_is_another_target() -> None:
    found = find_drafters(TargetSizes("qwen3", 4096, 36, 32000))
    assert found == []


@pytest.mark.parametrize("drafter", PUBLISHED, ids=lambda drafter: drafter.made_for)
def test_every_drafter_is_found_by_its_targets_sizes(drafter: PublishedDrafter) -> None:
    target = TargetSizes(
        next(iter(drafter.model_types), "anything"),
        drafter.hidden_size,
        drafter.num_layers,
        drafter.vocab_size or 1000,
    )
    assert drafter in find_drafters(target)
    assert target.model_type in describe(drafter, target)


def test_the_one_drafter_that_fits_is_chosen() -> None:
    config = {
        "model_type": "qwen3",
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "vocab_size": 151936,
    }
    assert only_drafter(config).repo == "z-lab/Qwen3-4B-DFlash-b16"
    assert drafters_for({"model_type": "qwen3", "text_config": config}) == (
        only_drafter(config),
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "no published drafter"),
        ({"hidden_size": "2560", "num_hidden_layers": 36}, "no published drafter"),
        (
            {
                "model_type": "qwen3_5",
                "hidden_size": 5120,
                "num_hidden_layers": 64,
                "vocab_size": 248320,
            },
            "incoai/Qwen3.8-27B-DFlash2, Qwen3.6-27B",
        ),
    ],
    ids=["empty", "odd types", "two generations"],
)
def test_none_is_chosen_where_the_configuration_does_not_tell(
    config: dict[str, object], words: str
) -> None:
    with pytest.raises(PairError) as failure:
        only_drafter(config)

    assert words in failure.value.why


def test_the_model_card_decides_between_two_that_fit() -> None:
    config = {
        "model_type": "qwen3_5",
        "hidden_size": 5120,
        "num_hidden_layers": 64,
        "vocab_size": 248320,
    }
    assert only_drafter(config, "Qwen/Qwen3.8-27B").repo == "incoai/Qwen3.8-27B-DFlash2"
    for other in (
        "someone/else",
        "Qwen/Qwen3.6-27B",
    ):  # the latter's has no known place
        with pytest.raises(PairError):
            only_drafter(config, other)


def test_a_description_says_which_under_which_licence_and_why() -> None:
    found = find_drafters(QWEN_27B)
    assert describe(found[0], QWEN_27B) == (
        "incoai/Qwen3.8-27B-DFlash2 (DFlash 2, Apache-2.0), made for Qwen3.8-27B: also "
        "qwen3_5 of width 5120 with 64 layers and 248320 tokens"
    )
    assert describe(found[1], QWEN_27B).startswith(
        "a drafter whose repository is not known here (DFlash, licence: see its card)"
    )
