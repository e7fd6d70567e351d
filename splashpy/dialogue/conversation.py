# SPDX-License-Identifier: Apache-2.0
"""Messages as clients send them, brought into the one form templates can rely on.

``normalise`` makes every message a dict with a known role and text content.
``fit`` rearranges what a template refuses (see ``acceptance.py``). Both look at a
message and the ones before it only, so a longer conversation keeps the tokens of its
beginning, and the prefix cache keeps its use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from splashpy.dialogue.acceptance import Acceptance
from splashpy.errors import UsageError

Message = dict[str, Any]

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")


def normalise(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Messages in the form templates rely on.

    - roles are system, user, assistant or tool;
    - ``content`` is text: None becomes empty, text parts are joined as they are;
    - ``tool_calls`` have objects as arguments; a call whose arguments are no JSON
      object is kept as text of the message;
    - reasoning is in ``reasoning_content``, whatever name it came under;
    - other fields that are None are absent;
    - system messages at the beginning are one message.

    Raises:
        UsageError: no messages, an unknown role, or content that is not text.
    """
    if not messages:
        raise UsageError(
            "the conversation has no messages", fix=("send at least one message",)
        )
    found = [_message(number, item) for number, item in enumerate(messages, start=1)]
    return _join_leading_system(found)


def normalise_tools(
    tools: Sequence[Mapping[str, Any]] | None,
) -> list[dict[str, Any]] | None:
    """Tools as a list; None where there are none, so that ``[]`` means no tools.

    Whether a tool is strict is not the model's business, so it is left out.

    Raises:
        UsageError: a tool is not an object.
    """
    for number, tool in enumerate(tools or (), start=1):
        if not isinstance(tool, Mapping):
            raise UsageError(
                f"tool {number} is a {type(tool).__name__}, not an object",
                fix=('write a tool as {"type": "function", "function": {…}}',),
            )
    return [_shown(tool) for tool in tools] if tools else None


def _shown(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping) or "strict" not in function:
        return dict(tool)
    shown = {key: value for key, value in function.items() if key != "strict"}
    return {**tool, "function": shown}


def fit(messages: Sequence[Message], acceptance: Acceptance) -> list[Message]:
    """Messages the template renders, with nothing lost.

    A leading system message the template refuses becomes the beginning of the first
    user turn. A later one becomes a ``<system-reminder>`` at its place: at the end of
    the user turn before it, or a user turn of its own.
    """
    rest = list(messages)
    fitted: list[Message] = []
    if rest[0]["role"] == "system" and acceptance.system_first:
        fitted.append(rest.pop(0))
    elif rest[0]["role"] == "system":
        rest = _system_as_user(rest)
    for message in rest:
        if message["role"] == "system" and not acceptance.system_later:
            reminder = _reminder(message["content"])
            _add_to_user_turn(fitted, {"role": "user", "content": reminder})
        elif message["role"] == "user" and not acceptance.repeated_user:
            _add_to_user_turn(fitted, message)
        else:
            fitted.append(message)
    return fitted


def _message(number: int, message: Mapping[str, Any]) -> Message:
    if not isinstance(message, Mapping):
        raise UsageError(
            f"message {number} is a {type(message).__name__}, not an object",
            fix=('write a message as {"role": "user", "content": "…"}',),
        )
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise UsageError(
            f"message {number} has the role {role!r}",
            why=f"roles are {', '.join(_ROLES)}",
            fix=("use one of these roles",),
        )
    result = {key: value for key, value in message.items() if value is not None}
    result["role"] = _ROLES[role]
    result["content"] = _text(number, message.get("content"))
    _gather_reasoning(result)
    _gather_tool_calls(number, result)
    return result


def _text(number: int, content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        return "".join(_part_text(number, part) for part in content)
    raise UsageError(
        f"the content of message {number} is a {type(content).__name__}",
        fix=("send text, or a list of text parts",),
    )


def _part_text(number: int, part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    field = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    text = part.get(field) if field is not None else None
    if not isinstance(text, str):
        raise UsageError(
            f"message {number} has a content part of type {kind!r}",
            why="the model reads text only"
            if field is None
            else f"a part of this type needs a text in its field {field!r}",
            fix=('send parts of type "text"',),
        )
    return text


def _gather_reasoning(message: Message) -> None:
    values = [message.pop(name, None) for name in _REASONING_FIELDS]
    text = next((value for value in values if isinstance(value, str) and value), None)
    if text is not None and message["role"] == "assistant":
        message["reasoning_content"] = text


def _gather_tool_calls(number: int, message: Message) -> None:
    calls = message.pop("tool_calls", None) or ()
    legacy = message.pop("function_call", None)
    if legacy is not None:
        calls = ({"function": legacy},)
    kept = []
    for call in calls if isinstance(calls, list | tuple) else (calls,):
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise UsageError(
                f"message {number} has a tool call that names no function",
                fix=('write it as {"function": {"name": …, "arguments": …}}',),
            )
        arguments = _arguments(function.get("arguments"))
        if arguments is None:
            _keep_as_text(message, function)
        else:
            kept.append(
                {
                    **({} if function is call else call),
                    "type": "function",
                    "function": {**function, "arguments": arguments},
                }
            )
    if kept:
        message["tool_calls"] = kept


def _arguments(value: Any) -> dict[str, Any] | None:
    """Arguments as an object; None when they are none."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return dict(value) if isinstance(value, Mapping) else None


def _keep_as_text(message: Message, function: Mapping[str, Any]) -> None:
    call = f"{function.get('name', '')} {function['arguments']}"
    message["content"] = _paragraphs(
        message["content"], f"Incomplete tool call: {call}"
    )


def _join_leading_system(messages: list[Message]) -> list[Message]:
    count = 0
    while count < len(messages) and messages[count]["role"] == "system":
        count += 1
    if count < 2:
        return messages
    text = _paragraphs(*(item["content"] for item in messages[:count]))
    return [{**messages[0], "content": text}, *messages[count:]]


def _system_as_user(messages: list[Message]) -> list[Message]:
    system, *rest = messages
    if rest and rest[0]["role"] == "user":
        text = _paragraphs(system["content"], rest[0]["content"])
        return [{**rest[0], "content": text}, *rest[1:]]
    return [{"role": "user", "content": system["content"]}, *rest]


def _add_to_user_turn(messages: list[Message], message: Message) -> None:
    if messages and messages[-1]["role"] == "user":
        text = _paragraphs(messages[-1]["content"], message["content"])
        messages[-1] = {**messages[-1], "content": text}
    else:
        messages.append(message)


def _reminder(text: str) -> str:
    return f"<system-reminder>\n{text}\n</system-reminder>"


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)
