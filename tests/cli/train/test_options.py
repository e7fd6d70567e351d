# SPDX-License-Identifier: Apache-2.0
"""Options from a file, and the defaults the page tells."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

from commandline import Call

from splashpy.cli.options import OPTIONS
from splashpy.cli.train import EVAL_PROMPTS, EVAL_TOKENS
from splashpy.cli.train_settings import (
    _GEOMETRY,
    _OBJECTIVE,
    _PLAN,
    _ROWS,
    _WRITING,
    RECORD,
    SEED,
)
from splashpy.training.course import EPOCHS
from splashpy.training.init import Geometry
from splashpy.training.loss import Objective
from splashpy.training.plan import TrainingPlan
from splashpy.training.writing import WritingPlan


def test_a_file_of_options_gives_way_to_flags_and_is_checked_as_they_are(
    call: Call, target: str, texts: str, tmp_path: Path
) -> None:
    file = tmp_path / "train.toml"
    file.write_text(
        f"data = {json.dumps(texts)}\nsteps = 3\nlayers = 2\nconv_group = 8\n"
        "features = [0, 2, 3]\nlearning-rate = 1e-3\nheld-out = 0.3\n"
    )
    run = tmp_path / "run"
    words = ("train", target, "--config", str(file), "--eval-prompts", "0", "-o")
    result = call(*words, str(run), "--steps", "1", "--json")

    assert result.code == 0
    assert result.json["evaluation"] is None
    assert json.loads((run / RECORD).read_text())["options"] == {
        "data": [texts],
        "steps": 1,
        "layers": 2,
        "conv-group": 8,
        "features": [0, 2, 3],
        "learning-rate": 0.001,
        "held-out": 0.3,
        "eval-prompts": 0,
    }
    for text, needle in (
        ("stepz = 3\n", "there is no option stepz"),
        ("steps = -3\n", "steps got '-3'"),
        ("resume = true\n", "there is no option resume"),
        ("steps\n", "is not TOML"),
    ):
        file.write_text(text)
        result = call(*words, str(tmp_path / "other"))
        assert result.code == 2
        assert needle in result.err


def test_the_page_tells_the_defaults_that_apply() -> None:
    tables = [
        (_WRITING, WritingPlan),
        (_GEOMETRY, Geometry),
        (_OBJECTIVE, Objective),
        (_PLAN, TrainingPlan),
    ]
    words = ("spread", "as the target", "all")
    for table, kind in tables:
        defaults = {each.name: each.default for each in fields(kind)}
        for name, field in table.items():
            if name != "mask-token-id":
                value, said = defaults[field], _ROWS[name].default
                number = isinstance(value, int | float)
                assert said in ([f"{value:g}"] if number else words), name
    plan = {each.name: each.default for each in fields(TrainingPlan)}
    assert plan["seed"] == SEED == int(OPTIONS["training_seed"].default)
    assert OPTIONS["eval_prompts"].default == str(EVAL_PROMPTS)
    assert OPTIONS["eval_tokens"].default == str(EVAL_TOKENS)
    assert OPTIONS["steps"].default == f"each text {EPOCHS} times"
