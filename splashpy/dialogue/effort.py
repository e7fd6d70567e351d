# SPDX-License-Identifier: Apache-2.0
"""How much a model is asked to reason, in the words of its chat template.

Templates know an effort word (``reasoning_effort``), a switch (``enable_thinking``),
both, or neither. Which words a template takes is found by rendering each: one that
raises at words it does not know has a scale of its own; one that takes any word gets
low, medium and high. Requests may use any word of ``WORDS``; a word the model does not
have means the next higher one it has, or its highest. ``none`` switches reasoning off
where there is a switch and is the lowest level elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from splashpy.errors import TemplateError, UsageError

WORDS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_USUAL = ("low", "medium", "high")
_ON = "on"
_WORD_VARIABLES = ("reasoning_effort", "reasoning_strength")
_SWITCHES = ("enable_thinking", "thinking")
_NO_WORD = "banana"


@dataclass(frozen=True, slots=True, kw_only=True)
class EffortScale:
    """The efforts one template distinguishes.

    Attributes:
        levels: their names, lowest first; empty when the template has no say.
        default: the level the template uses when not told; empty when none is it.
        options: template options of each level.
    """

    levels: tuple[str, ...] = ()
    default: str = ""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def choose(self, effort: str | None) -> Mapping[str, Any]:
        """Template options for a requested effort; None leaves it to the template.

        Raises:
            UsageError: the word is no effort.
        """
        if effort is None:
            return {}
        if effort in self.options:
            return self.options[effort]
        if effort not in WORDS:
            known = tuple(dict.fromkeys((*self.levels, *WORDS)))
            raise UsageError(
                f"{effort!r} is not a reasoning effort",
                why=f"efforts are {', '.join(known)}",
                fix=("choose one of these",),
            )
        return self.options[self._nearest(effort)] if self.levels else {}

    def _nearest(self, effort: str) -> str:
        if effort == "none":
            return self.levels[0]
        words = [level for level in self.levels if level in WORDS and level != "none"]
        wanted = WORDS.index(effort)
        higher = [level for level in words if WORDS.index(level) >= wanted]
        return higher[0] if higher else self.levels[-1]


def find_scale(
    render: Callable[[Mapping[str, Any]], str], variables: Collection[str]
) -> EffortScale:
    """The efforts a template distinguishes.

    Args:
        render: a short conversation with the given template options; raises
            ``TemplateError`` when the template does.
        variables: names the template reads from outside.
    """

    def attempt(options: Mapping[str, Any]) -> str | None:
        try:
            return render(options)
        except TemplateError:
            return None

    switch = next((name for name in _SWITCHES if name in variables), None)
    word = next((name for name in _WORD_VARIABLES if name in variables), None)
    options = _options(attempt, word, switch)
    texts = {
        level: text
        for level, chosen in options.items()
        if (text := attempt(chosen)) is not None
    }
    if len(set(texts.values())) < 2:
        return EffortScale()
    untold = attempt({})
    default = next((level for level, text in texts.items() if text == untold), "")
    kept = {level: options[level] for level in texts}
    return EffortScale(levels=tuple(kept), default=default, options=kept)


def _options(
    attempt: Callable[[Mapping[str, Any]], str | None],
    word: str | None,
    switch: str | None,
) -> dict[str, dict[str, Any]]:
    thinking = {} if switch is None else {switch: True}
    levels: dict[str, dict[str, Any]] = {}
    if word is not None:
        takes_any = attempt({**thinking, word: _NO_WORD}) is not None
        levels = {
            level: options
            for level in (_USUAL if takes_any else WORDS)
            if attempt(options := {**thinking, word: level}) is not None
        }
    if switch is None:
        return levels
    off = {"none": {switch: False}}
    return {**off, **(levels or {_ON: thinking}), **off}
