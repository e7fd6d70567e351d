# SPDX-License-Identifier: Apache-2.0
"""The top line: which model, with or without draft, and how full its context is."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from splashpy.chat.meters import UNKNOWN
from splashpy.chat.session import Session
from splashpy.chat.sizes import NARROW
from splashpy.chat.theme import FAINT
from splashpy.protocol import Ready
from splashpy.sanitize import sanitize_line
from splashpy.units import format_tokens

_GAP = Content("  ")
_GAUGE_CELLS = 10
_FULL = 0.9
_FILLING = 0.7
_DRAFT_WORDS = {"active": "with draft", "lookup": "lookup only", "off": "no draft"}


class HeaderBar(Widget):
    """Draws the name of the model and the context gauge."""

    def __init__(self) -> None:
        super().__init__()
        self._model = ""
        self._ready: Ready | None = None
        self._used: int | None = None
        self._words: list[str] = []

    def show(self, session: Session) -> None:
        """Draw this session's model from now on."""
        ready = session.engine.ready
        effort = session.settings.effort or (ready.effort_default if ready else "")
        words = [] if session.settings.draft else ["drafts off"]
        words += [f"effort {effort}"] if effort else []
        words += ["attached"] if session.settings.server else []
        used = tokens_used(session)
        seen = (session.model_name, ready, used, words)
        if seen != (self._model, self._ready, self._used, self._words):
            self._model, self._ready, self._used, self._words = seen
            self.refresh()

    def render(self) -> Content:
        """Program, model and draft on the left, context on the right."""
        width = self.size.width
        narrow = self.app.size.width < NARROW
        right = self._gauge(narrow=narrow)
        room = max(width - right.cell_length - 1, 1)
        left = [] if narrow else [Content.styled("splashpy", "bold $text-primary")]
        left.append(Content(sanitize_line(self._model)))
        joined = _GAP.join(left).truncate(room, ellipsis=True)
        if self._ready is not None and not narrow:
            for word in (_DRAFT_WORDS[self._ready.draft.state], *self._words):
                longer = _GAP.join([joined, Content.styled(sanitize_line(word), FAINT)])
                if longer.cell_length > room:
                    break
                joined = longer
        space = " " * max(width - joined.cell_length - right.cell_length, 1)
        return Content.assemble(joined, space, right)

    def _gauge(self, *, narrow: bool) -> Content:
        if self._ready is None:
            return Content("")
        limit, used = self._ready.context_max, self._used
        share = min((used or 0) / limit, 1.0) if limit else 0.0
        style = "$text-error" if share >= _FULL else "$text-primary"
        style = "$text-warning" if _FILLING <= share < _FULL else style
        if narrow:
            text = UNKNOWN if used is None else f"{share:.0%}"
            return Content.styled(f"ctx {text}", style)
        filled = round(share * _GAUGE_CELLS)
        return Content.assemble(
            Content.styled("ctx ▐", FAINT),
            Content.styled("█" * filled, style),
            Content.styled("░" * (_GAUGE_CELLS - filled) + "▌ ", FAINT),
            UNKNOWN if used is None else format_tokens(used),
            f" / {format_tokens(limit)}",
        )


def tokens_used(session: Session) -> int | None:
    """Tokens of the conversation, as the engine counted them; None: it did not yet."""
    reply = session.reply
    if reply is not None and reply.prefill is not None:
        return reply.prefill.total
    if session.counted is not None:
        return session.counted
    empty = not session.tree.messages and not session.settings.system
    return 0 if empty else session.context_used
