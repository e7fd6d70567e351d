# SPDX-License-Identifier: Apache-2.0
"""Draft with the demo package's drafter in splashpy and in dflash 0.1.0.

The target answers the built-in prompts; both programs then draft after many of the
answer's tokens, from the same features; exit 1 where a draft differs. dflash knows no
frequent tokens, so splashpy drafts from the whole vocabulary too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import original

from splashpy.bench.prompts import QUICK
from splashpy.bench.session import Session
from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.drafter import DraftSampling
from splashpy.models.dflash2_load import load_drafter
from splashpy.models.target import MlxLmTarget
from splashpy.package.library import Library
from splashpy.package.model_directory import ModelDirectory
from splashpy.packing.pull import pull
from splashpy.paths import Paths
from splashpy.protocol import LoadOptions
from splashpy.training.batches import candidates
from splashpy.training.examples import Example
from splashpy.training.lessons import Lesson, Lessons

TOKENS = 48
EVERY = 6  # answer tokens from one draft to the next


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draft", metavar="DIR", help="another drafter")
    options = parser.parse_args()
    paths = Paths.default()
    pull("demo", paths)
    model = ModelDirectory.open(Library(paths).find("demo").path)
    directory = Path(options.draft) if options.draft else model.draft
    if directory is None:
        sys.exit("the demo package has no drafter")
    session = Session.open(model, LoadOptions(no_draft=True))
    target: Any = session.target
    ours = DFlash2Drafter(
        load_drafter(directory, target.facts), target, whole_vocabulary=True
    )
    theirs = original.load_drafter(directory)
    theirs.set_dtype(mx.float32)
    theirs.bind(target._model)
    same = compared = 0
    for lesson, anchor in drafting_points(session, target, ours):
        drafts = (
            draft_with_splashpy(ours, lesson, anchor),
            draft_with_dflash(theirs, lesson, anchor, ours),
        )
        compared += 1
        same += drafts[0] == drafts[1]
        if drafts[0] != drafts[1]:
            print(f"after token {anchor}: splashpy {drafts[0]}, dflash {drafts[1]}")
    print(f"{same} of {compared} drafts of {ours.block_size - 1} tokens are equal")
    if same < compared:
        sys.exit("splashpy and dflash differ")


def drafting_points(
    session: Session, target: MlxLmTarget, drafter: DFlash2Drafter
) -> Iterator[tuple[Lesson, int]]:
    """Answers with their features, and positions in them."""
    lessons = Lessons(target, drafter.feature_layers, dtype=mx.float32)
    for prompt in QUICK:
        asked = session.prompt_ids(prompt.text)
        answer = session.answer(asked, session.plain, max_tokens=TOKENS).token_ids
        text = Example((*asked, *answer), len(asked), "")
        lesson = lessons.of(text)
        for anchor in candidates(text)[::EVERY]:
            yield lesson, anchor


def draft_with_splashpy(
    drafter: DFlash2Drafter, lesson: Lesson, anchor: int
) -> list[int]:
    state = drafter.new_state()
    drafter.observe(state, (), lesson.features[:anchor], 0)
    token = mx.array(lesson.example.token_ids[anchor])
    proposal = drafter.propose(state, token, drafter.block_size, DraftSampling())
    drafted: Any = proposal.token_ids.tolist()
    return drafted


def draft_with_dflash(
    drafter: Any, lesson: Lesson, anchor: int, ours: DFlash2Drafter
) -> list[int]:
    masks = [ours.config.mask_token_id] * (ours.block_size - 1)
    block = mx.array([[lesson.example.token_ids[anchor], *masks]])
    features = lesson.features[None, :anchor]
    found = drafter.propose(block, features, drafter.make_cache(), 0.0, 1)
    return (found[0] if isinstance(found, tuple) else found).reshape(-1).tolist()


if __name__ == "__main__":
    main()
