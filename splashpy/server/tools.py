# SPDX-License-Identifier: Apache-2.0
"""Tools and the choice among them, as OpenAI writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from splashpy.protocol import ToolChoice
from splashpy.server.errors import ApiError
from splashpy.server.fields import Fields


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools of a request.

    Attributes:
        tools: OpenAI tool objects.
        choice: whether a call may, must not or must be the answer.
        name: the only tool that may be called; empty: any.
        allowed: the only tools that may be called; empty: all.
        parallel: an answer may hold several calls.
    """

    tools: tuple[dict[str, Any], ...] = ()
    choice: ToolChoice = "auto"
    name: str = ""
    parallel: bool = True
    allowed: tuple[str, ...] = ()

    @property
    def callable(self) -> bool:
        """Whether the answer may hold a call."""
        return bool(self.tools) and self.choice != "none"


def read_offer(body: Fields) -> Offer:
    """The tools of a chat request; the deprecated ``functions`` are tools too.

    Raises:
        ApiError: a tool without a name, or a call required where there is no tool.
    """
    tools = [item for item in map(_tool, body.objects("tools")) if item]
    tools += [function_tool(item) for item in body.objects("functions")]
    choice = body.raw("tool_choice")
    if choice is None:
        choice = body.raw("function_call")
    found = Offer(
        tuple(tools),
        *read_choice(choice),
        parallel=body.flag("parallel_tool_calls", default=True),
        allowed=tuple(map(_name_in, allowed_tools(choice))),
    )
    check_offer(found)
    return found


def read_choice(choice: Any) -> tuple[ToolChoice, str]:
    """A tool choice as OpenAI's endpoints write it; unknown objects mean auto.

    Raises:
        ApiError: a word that is no choice.
    """
    if choice is None:
        return "auto", ""
    if isinstance(choice, dict):
        name = _name_in(choice)
        if name:
            return "required", name
        mode = _allowance(choice).get("mode")
        return ("required" if mode == "required" else "auto"), ""
    if choice == "any":
        choice = "required"
    if choice not in ("auto", "none", "required"):
        raise ApiError(
            "invalid_value",
            f"tool_choice must be auto, none, required or a tool, not {choice!r}",
            param="tool_choice",
        )
    return choice, ""


def allowed_tools(choice: Any) -> list[dict[str, Any]]:
    """The tools a choice is limited to, as it names them; empty: to none.

    Raises:
        ApiError: a limit to nothing.
    """
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return []
    tools = _allowance(choice).get("tools")
    found = [t for t in tools if isinstance(t, dict)] if isinstance(tools, list) else []
    if not any(map(_name_in, found)):
        raise ApiError(
            "invalid_value", "tool_choice allows no tools", param="tool_choice"
        )
    return found


def _allowance(choice: dict[str, Any]) -> dict[str, Any]:
    """The object that holds mode and tools, which Chat Completions nests."""
    nested = choice.get("allowed_tools")
    return nested if isinstance(nested, dict) else choice


def _name_in(tool: dict[str, Any]) -> str:
    """The name of a tool, flat or nested; empty where there is none."""
    function = tool.get("function", tool)
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


def check_offer(offer: Offer) -> None:
    """Refuse a required call that cannot be.

    Raises:
        ApiError: there are no tools, or not the one named.
    """
    names = {tool["function"]["name"] for tool in offer.tools}
    if offer.allowed and names.isdisjoint(offer.allowed):
        raise ApiError(
            "invalid_value",
            f"tool_choice allows {', '.join(offer.allowed)}, tools offers none of them",
            param="tool_choice",
        )
    if offer.choice == "required" and (
        not names or (offer.name and offer.name not in names)
    ):
        raise ApiError(
            "invalid_value",
            f"tool_choice asks for {offer.name or 'a call'}, tools does not offer it",
            param="tool_choice",
        )


def function_tool(
    tool: Fields, parameters: str = "parameters", *, name: str = ""
) -> dict[str, Any]:
    """A tool in the form templates read; absent parts are left out.

    Args:
        tool: as a client wrote it, in one object.
        parameters: the field that holds the schema of its arguments.
        name: its name; empty: as it says itself.

    Raises:
        ApiError: it has no name.
    """
    function: dict[str, Any] = {"name": name or tool_name(tool)}
    description, schema = tool.raw("description"), tool.raw(parameters)
    if isinstance(description, str):
        function["description"] = description
    function["parameters"] = schema if isinstance(schema, dict) else {}
    if tool.raw("strict") is True:
        function["strict"] = True
    return {"type": "function", "function": function}


def tool_name(tool: Fields) -> str:
    """The name of a tool.

    Raises:
        ApiError: it has none.
    """
    name = tool.text("name")
    if not name:
        place = tool.where("name")
        raise ApiError("invalid_value", f"{place} is missing", param=place)
    return name


def _tool(tool: Fields) -> dict[str, Any] | None:
    """A tool as it is; None for kinds only a hosted service has."""
    kind = tool.text("type", "function")
    if kind != "function":
        return None
    if not tool.has("function"):
        return function_tool(tool)
    tool_name(tool.object("function"))
    return {"type": "function", "function": tool.mapping("function")}
