# SPDX-License-Identifier: Apache-2.0
"""The demo drafter's prompts: many, different, and not those that judge it."""

from __future__ import annotations

import runpy
from pathlib import Path

from splashpy.bench.prompts import QUICK

SCRIPT = Path(__file__).parents[2] / "scripts" / "training" / "demo_prompts.py"


def test_the_prompts_are_the_same_every_time_and_none_measures_the_result() -> None:
    script = runpy.run_path(str(SCRIPT))
    texts = list(script["prompts"]())

    assert texts == list(script["prompts"]())
    assert len(set(texts)) == len(texts) == script["COUNT"]
    assert not {each.text for each in QUICK} & set(texts)
    assert not [text for text in texts if "{" in text]
