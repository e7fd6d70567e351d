# SPDX-License-Identifier: Apache-2.0
"""The README.md inside a built package."""

from __future__ import annotations

from splashpy.package.manifest import Manifest

_TEMPLATE = """\
# {title}

A splashpy package: {parts}. Start it with `splashpy chat ./{name}`.

- Target: {repo_id} {revision}, {spdx} (licenses/target.txt)
{draft}
The target also works without splashpy:

    from mlx_lm import generate
    from mlx_lm.utils import load_model, load_tokenizer
    from pathlib import Path

    package = Path("{name}")
    model, _ = load_model(package / "target")
    tokenizer = load_tokenizer(package / "tokenizer")
    print(generate(model, tokenizer, "The capital of France is", max_tokens=16))

What the files mean: docs/package-format.md of splashpy.
"""


def readme(title: str, manifest: Manifest) -> str:
    """Text for a person who opens the package's directory.

    Args:
        title: what people call the model.
        manifest: of the package.
    """
    draft = manifest.draft
    return _TEMPLATE.format(
        title=title,
        name=manifest.name,
        parts="a target and its drafter" if draft else "a target without a drafter",
        repo_id=manifest.target.source.repo_id,
        revision=manifest.target.source.revision,
        spdx=manifest.target.license.spdx,
        draft=f"- Drafter: {draft.source.repo_id}, {draft.license.spdx} "
        "(licenses/draft.txt)\n"
        if draft
        else "",
    )
