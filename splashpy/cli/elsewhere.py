# SPDX-License-Identifier: Apache-2.0
"""What the Hub says about a model that is not on this machine.

Only the listing and one configuration are fetched, never a weight.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from splashpy.errors import ModelKindError
from splashpy.package import hub, names
from splashpy.package.fields import Fields
from splashpy.package.model_directory import context_max, read_sizes
from splashpy.package.published_drafters import TargetSizes
from splashpy.packing.memory_verdict import judge
from splashpy.packing.outlook import of_repository


def repository(word: str) -> names.ModelName | None:
    """The repository a MODEL argument means; None where it means none."""
    wish = names.parse(word)
    model = names.known(word) if wish.kind == "short" else None
    if model and model.repo:
        wish = names.parse(model.repo)
    return wish if wish.kind == "hub" else None


def read(wish: names.ModelName) -> tuple[dict[str, Any], TargetSizes | None]:
    """Ask the Hub.

    Returns:
        What it says, as JSON, and the sizes of the target; None where no configuration
        states them.

    Raises:
        ModelUnknownError, AuthorisationError, HubError, OfflineError: it says nothing.
        ModelKindError, IntegrityError: the configuration is not a JSON object.
    """
    about = hub.repository_facts(wish.repo, wish.revision)
    outlook = of_repository(about)
    config, memory = dict(outlook.config), judge(outlook.parts, outlook.config)
    target = _sizes(config, wish.repo)
    fields = {
        "name": wish.text,
        "path": None,
        "origin": "hub",
        "model_type": target and target.model_type,
        "revision": about.commit,
        "licence": about.license or None,
        "size_bytes": about.size_bytes,
        "context_max": context_max(config) if config else None,
        "layers": target and target.num_layers,
        "hidden_size": target and target.hidden_size,
        "vocabulary": target and target.vocab_size,
        "memory": memory and asdict(memory),
        "files": dict(about.files),
    }
    return fields, target


def _sizes(config: dict[str, Any], repo: str) -> TargetSizes | None:
    fields = Fields(config, f"{repo}: config.json")
    try:
        return TargetSizes(fields.text("model_type"), *read_sizes(fields))
    except ModelKindError:  # a model of another kind may have other names for them
        return None
