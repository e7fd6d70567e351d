# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from splashpy.training.card import ModelCard, write_card
from splashpy.training.evaluate import Decoded, Evaluation
from splashpy.training.examples import Example


def test_a_card_says_what_was_trained_on_what_and_how(tmp_path: Path) -> None:
    card = ModelCard(
        name="tiny-dflash2",
        target="tiny",
        licence="Apache-2.0",
        command="splashpy train tiny --steps 7",
        steps=7,
        examples=[Example((1, 2, 3, 4), 1, ""), Example((5, 6), 1, "")],
        held_out=[Example((7, 8), 1, "")],
        metrics={"val_accept_len": 2.34567},
        evaluation=Evaluation((Decoded(8, 4, 4, 1.0, 2.0),), 2.0, 2.0, 2.0),
    )
    write_card(card, tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert text.startswith("---\nlicense: Apache-2.0\nbase_model: tiny\n---\n")
    assert "2 texts with 4 answer tokens" in text
    assert "```\nsplashpy train tiny --steps 7\n```" in text
    assert "| `val_accept_len` | 2.346 |" in text
    assert "2.00 tokens per verify pass" in text
