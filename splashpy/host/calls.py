# SPDX-License-Identifier: Apache-2.0
"""Tool calls of one model: how they begin, how they must look, and who reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from splashpy import protocol
from splashpy.dialogue.prompt import Prompt
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.dialogue.tools.call_grammar import CallRules, OfferedTool, offered_tools
from splashpy.dialogue.tools.calling import Calling, Choice
from splashpy.dialogue.tools.formats import ToolFormat
from splashpy.errors import ConstraintError, UsageError


@dataclass(frozen=True, slots=True)
class Calls:
    """How one model is made to call tools.

    Attributes:
        tokenizer: of the model.
        form: how it writes calls; None where nobody knows.
    """

    tokenizer: Tokenizer
    form: ToolFormat | None

    def forced_words(self, command: protocol.Generate) -> tuple[str, ...]:
        """What an answer that must be a call begins with; empty: nothing.

        Raises:
            UsageError: a call is required of a model whose calls cannot be read.
        """
        if command.tool_choice != "required":
            return ()
        if self.form is None:
            raise UsageError(
                "this model calls no tools, so a call cannot be required of it",
                why="its chat template shows no tools, or in a format not known here",
                fix=('leave "tool_choice" out',),
            )
        named = [tool.name for tool in _callable(command)]
        return self.form.frame.words(*named if len(named) == 1 else ())

    def begun(self, command: protocol.Generate, prompt: Prompt) -> str:
        """What the prompt already says of an answer that must be a call."""
        return "" if prompt.opens_reasoning else "".join(self.forced_words(command))

    def rules(self, command: protocol.Generate, prompt: Prompt) -> CallRules | None:
        """What calls must look like; None where they may look as they do."""
        form, tools = self.form, _callable(command)
        if form is None or command.tool_choice == "none":
            return None
        said = self.begun(command, prompt)
        if command.tool_choice == "auto":
            if not command.allowed_tools and not any(tool.strict for tool in tools):
                return None
            # Calls of the others are left to the model.
            tools = [t if t.strict else replace(t, care="none") for t in tools]
            said = form.region[0]
        return CallRules(
            form=form,
            tools=tools,
            said=said,
            several=command.parallel_tool_calls,
            after_text=command.tool_choice == "auto" and self._opens_as_text,
        )

    @property
    def _opens_as_text(self) -> bool:
        """Whether a call begins in ordinary characters, with no token of its own."""
        tokenizer = self.tokenizer
        ids = tokenizer.encode(self.form.region[0] if self.form else "")
        return tokenizer.control_ids.isdisjoint(ids)

    def banned_ids(self, command: protocol.Generate) -> tuple[int, ...]:
        """Tokens the answer must not hold: the one that begins a call, if forbidden."""
        form = self.form
        if command.tool_choice != "none" or not command.tools or form is None:
            return ()
        token_id = self.tokenizer.control_id(form.region[0])
        return () if token_id is None else (token_id,)

    def opening_token(self, command: protocol.Generate) -> int | None:
        """The token a constrained answer may begin with to be a call instead.

        None where no call may be the answer.

        Raises:
            ConstraintError: no single token begins a call.
        """
        form = self.form
        if not command.tools or command.tool_choice == "none" or form is None:
            return None
        token_id = self.tokenizer.control_id(form.region[0])
        if token_id is None:
            raise ConstraintError(
                "neither answer nor calls can be constrained where both may come",
                why="this model begins a call with no token of its own",
                fix=['set "tool_choice" to "none" or "required"'],
            )
        return token_id

    def reader(self, command: protocol.Generate, prompt: Prompt) -> Calling | None:
        """Reads the calls of the answer; None where it may hold none."""
        offered = bool(command.tools) and command.tool_choice != "none"
        if self.form is None or not offered:
            return None
        choice = Choice(
            single=not command.parallel_tool_calls,
            forced=self.begun(command, prompt),
        )
        return Calling(self.tokenizer, self.form, command.tools, choice)


def _callable(command: protocol.Generate) -> list[OfferedTool]:
    """The tools a call may name."""
    wanted = (command.tool_name,) if command.tool_name else command.allowed_tools
    tools = offered_tools(command.tools)
    return [tool for tool in tools if not wanted or tool.name in wanted]
