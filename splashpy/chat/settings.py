# SPDX-License-Identifier: Apache-2.0
"""What a person chose for one chat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from splashpy.protocol import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """Wishes of a person, the same for every message of the session.

    Attributes:
        sampling: how tokens are chosen; None fields mean the package's defaults.
        max_tokens: answer tokens at most; None: what the context leaves.
        effort: how long the model thinks; None: its own default.
        draft: False decodes one token at a time.
        system: the system prompt.
        title: the window's title; empty uses the model's name.
        inline: draw below the shell's prompt instead of on the whole screen.
        mouse: let the chat have the mouse; False leaves it to the terminal.
        theme: name of a colour theme; None uses the default one.
        themes: folder with themes of the person's own.
        remote: the terminal is on another machine (ssh), so what is copied must
            travel through the terminal.
        display: programs reach the desktop the terminal is shown on.
        tmux: the terminal is one of tmux.
        server: address of the server that has the model; empty: the chat has an engine
            of its own.
        editor: command for long prompts.
        pager: command for long messages.
        keys: for actions of ``keys.ACTIONS``, by id, instead of the table's.
        emoji: show pictures in text; False spells them out.
        motion: let what waits turn; False keeps it still.
        encoding: character set of the terminal.
    """

    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    effort: str | None = None
    draft: bool = True
    system: str | None = None
    title: str = ""
    inline: bool = False
    mouse: bool = True
    theme: str | None = None
    themes: Path | None = None
    remote: bool = False
    display: bool = False
    tmux: bool = False
    server: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    editor: str = "vi"
    pager: str = "less"
    emoji: bool = True
    motion: bool = True
    encoding: str = "utf-8"

    @property
    def unicode(self) -> bool:
        """Whether the terminal can show every character."""
        return self.encoding.lower().replace("-", "") == "utf8"

    def parameters(self) -> dict[str, Any]:
        """What a saved conversation keeps of it: what differs from the defaults."""
        sampling = {
            key: value
            for key, value in asdict(self.sampling).items()
            if value not in (None, ())
        }
        own = {"max_tokens": self.max_tokens, "effort": self.effort}
        chosen = {key: value for key, value in own.items() if value is not None}
        return {**sampling, **chosen, **({} if self.draft else {"draft": False})}

    def with_parameters(self, saved: Mapping[str, Any]) -> ChatSettings:
        """These settings, where a saved conversation says nothing else.

        Args:
            saved: as :meth:`parameters` gave it; unknown keys are ignored.
        """
        known = {field.name for field in fields(Sampling)}
        sampling = {key: _tuples(value) for key, value in saved.items() if key in known}
        own = {
            key: saved[key] for key in ("max_tokens", "effort", "draft") if key in saved
        }
        return replace(self, sampling=replace(self.sampling, **sampling), **own)


_OWN = ("max_tokens", "effort", "draft")


def _tuples(value: Any) -> Any:
    """JSON's lists as the tuples they were."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
