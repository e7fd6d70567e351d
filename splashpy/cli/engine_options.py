# SPDX-License-Identifier: Apache-2.0
"""Rows of the table of options that every command with an engine takes.

How the model is loaded, and how its tokens are chosen.
"""

from __future__ import annotations

from splashpy.cli import values
from splashpy.cli.option import Option

ENGINE_ROWS: dict[str, tuple[Option, ...]] = {
    "Engine": (
        Option("--revision", "revision of the model", "REV", values.text),
        Option(
            "--draft",
            "drafter to use instead",
            "DIR|REPO",
            values.text,
            default="the package's",
        ),
        Option("--no-draft", "decode one token at a time"),
        Option("--no-lookup", "no drafts from repeated text"),
        Option(
            "--lookup",
            "drafts from repeated text",
            default="where cheap",
            rare=True,
        ),
        Option(
            "--block-size",
            "tokens one pass may produce",
            "N",
            values.integer(1, 64),
            default="as trained",
        ),
        Option(
            "--draft-bits",
            "weight bits of the drafter",
            "4|8|16",
            values.number_choice(4, 8, 16),
            default="as packaged",
            rare=True,
        ),
        Option(
            "--max-context",
            "prompt plus answer",
            "N|NK",
            values.tokens(16),
            default="the model's",
            variable="SPLASHPY_MAX_CONTEXT",
        ),
        Option(
            "--max-memory",
            "for everything, as in 28G",
            "SIZE",
            values.some_size,
            default="the machine's",
            variable="SPLASHPY_MAX_MEMORY",
            key="memory",
        ),
        Option(
            "--kv",
            "how keys and values are kept",
            "auto|bf16|q8",
            values.choice("auto", "bf16", "q8"),
            default="auto: what fits",
        ),
        Option(
            "--wired",
            "keep weights in physical memory",
            "off|weights",
            values.choice("off", "weights"),
            default="off",
            rare=True,
        ),
        Option("--no-prefix-cache", "do not keep prompts that were read", rare=True),
        Option(
            "--cache-ram",
            "memory for prompts that were read",
            "SIZE",
            values.size,
            default="what is left",
            rare=True,
        ),
        Option(
            "--cache-disk",
            "disk for them; 0 keeps none",
            "SIZE|0",
            values.size,
            default="a tenth of free",
            rare=True,
        ),
        Option(
            "--no-update-check", "do not ask the Hub for a newer revision", rare=True
        ),
    ),
    "Sampling": (
        Option(
            "--temp",
            "temperature, 0 to 2; 0 is greedy",
            "F",
            values.decimal(0, 2),
            default="package",
        ),
        Option(
            "--top-p",
            "smallest set with this mass",
            "F",
            values.decimal(0, 1, above=True),
            default="package",
        ),
        Option(
            "--top-k",
            "the N most likely tokens; 0 keeps all",
            "N",
            values.integer(0),
            default="package",
        ),
        Option(
            "--min-p",
            "drop below F times the most likely",
            "F",
            values.decimal(0, 1),
            default="package",
            rare=True,
        ),
        Option(
            "--repetition-penalty",
            "divide seen logits; 1 is off",
            "F",
            values.decimal(0, 10, above=True),
            default="package",
            rare=True,
        ),
        Option(
            "--presence-penalty",
            "subtract once from seen tokens",
            "F",
            values.decimal(-2, 2),
            default="package",
            rare=True,
        ),
        Option(
            "--frequency-penalty",
            "subtract for each time seen",
            "F",
            values.decimal(-2, 2),
            default="package",
            rare=True,
        ),
        Option(
            "--penalty-window",
            "latest tokens that count as seen",
            "N",
            values.integer(1),
            default="all",
            rare=True,
        ),
        Option(
            "--logit-bias",
            "add to one token's logit (repeat)",
            "ID=VALUE",
            values.bias,
            repeat=True,
            rare=True,
        ),
        Option(
            "--seed",
            "same seed, same text",
            "N",
            values.integer(0, 2**64 - 1),
            default="random",
        ),
        Option(
            "--max-tokens",
            "length of the answer",
            "N|NK",
            values.tokens(1),
            default="what the context leaves",
        ),
        Option(
            "--stop",
            "end the answer before this text (repeat)",
            "TEXT",
            values.text,
            repeat=True,
        ),
    ),
}
"""Rows under the heading they stand under on a page."""
