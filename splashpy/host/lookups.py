# SPDX-License-Identifier: Apache-2.0
"""What a lookup in the prefix cache came to, in the words of the conversation."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from splashpy.cache.lookup import Lookup
from splashpy.dialogue.prompt import Prompt
from splashpy.dialogue.whereabouts import locate
from splashpy.host.model import Speech
from splashpy.protocol import Generate


def describe(
    command: Generate, prompt: Prompt, found: Lookup, speech: Speech
) -> dict[str, Any]:
    """A lookup, and under ``where`` the message and character where it departs.

    Args:
        command: what was asked.
        prompt: that, as tokens.
        found: what the lookup came to.
        speech: of the model.
    """
    where = None
    if found.shared and found.shared < found.length and command.messages:
        where = asdict(
            locate(
                speech.tokenizer,
                prompt.token_ids,
                prompt.text,
                command.messages,
                at=found.shared,
                was=found.was,
            )
        )
    return {**asdict(found), "where": where}
