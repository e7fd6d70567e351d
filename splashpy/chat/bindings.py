# SPDX-License-Identifier: Apache-2.0
"""The table of keys in Textual's terms."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from splashpy.chat.keys import Scope, of_scope


def bindings(scope: Scope) -> list[BindingType]:
    """The keys that hold in one place; those that hold anywhere come first.

    Args:
        scope: of the screen, the editor or the conversation.
    """
    return [
        Binding(
            row.keys,
            row.call,
            row.help,
            show=False,
            priority=scope == "anywhere",
            id=row.id,
        )
        for row in of_scope(scope)
    ]
