# SPDX-License-Identifier: Apache-2.0
"""What the scripted model says in these tests."""

from __future__ import annotations

from scripted_engine import Said


def says(text: str) -> Said:
    """An answer after a thought."""
    return Said((f"Hm.</think>{text}<|im_end|>",))


def call(tool: str, thought: str = "Hm.", **arguments: str) -> Said:
    """A call of a tool after a thought."""
    given = "".join(
        f"<parameter={key}>\n{value}\n</parameter>\n"
        for key, value in arguments.items()
    )
    markup = f"<tool_call>\n<function={tool}>\n{given}</function>\n</tool_call>"
    return Said((f"{thought}</think>{markup}<|im_end|>",))
