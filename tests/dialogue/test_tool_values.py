# SPDX-License-Identifier: Apache-2.0
"""Arguments of tool calls in the type the schema of the tool asks for."""

from __future__ import annotations

from typing import Any

import pytest
from tools_kit import qwen, read


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("text", "2025-06-15T10:30:00Z", "2025-06-15T10:30:00Z"),
        ("text", "null", "null"),
        ("text", "3.10", "3.10"),
        ("text", '{"a": 1}', '{"a": 1}'),
        ("text", "", ""),
        ("text", "\n two\n\nlines \n", "\n two\n\nlines \n"),
        ("count", "1.0", 1),
        ("count", "7", 7),
        ("count", "many", "many"),
        ("ratio", "2", 2),
        ("ratio", "2.5", 2.5),
        ("flag", "True", True),
        ("flag", "false", False),
        ("items", "[1, 'two', None]", [1, "two", None]),
        ("map", '{"a": {"b": [1.50]}}', {"a": {"b": [1.5]}}),
        ("map", '{"a": "line\nbreak"}', {"a": "line\nbreak"}),
        ("maybe", "null", "null"),
        ("either", "5", 5),
        ("either", "five", "five"),
        ("color", "red", "red"),
        ("point", '{"x": 1}', {"x": 1}),
        ("unknown", "version 3.10.5-beta", "version 3.10.5-beta"),
        ("unknown", "3.10.5-beta", "3.10.5-beta"),
        ("unknown", "2025-06-15T10:30:00Z", "2025-06-15T10:30:00Z"),
        ("unknown", "12", 12),
        ("unknown", "[1, 2]", [1, 2]),
        ("unknown", "true", True),
        ("unknown", "True", "True"),
        ("unknown", " 12", " 12"),
    ],
)
def test_a_written_value_takes_the_type_of_its_schema(
    key: str, text: str, value: Any
) -> None:
    found = read(qwen("f", **{key: text}), step=1)

    assert found.values == [("f", {key: value})]
    assert type(found.values[0][1][key]) is type(value)


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("count", "1.0", 1),
        ("count", '"12"', 12),
        ("count", '"1.0"', 1),
        ("count", '"twelve"', "twelve"),
        ("text", "3.10", "3.10"),
        ("text", "null", None),
        ("flag", '"true"', True),
        ("flag", "True", True),
        ("map", '"{\\"a\\": 1}"', {"a": 1}),
        ("text", '"line\nbreak\tand tab"', "line\nbreak\tand tab"),
        ("text", "'it\\'s \"so\"'", 'it\'s "so"'),
        ("text", '"\\ud83d\\ude42"', "🙂"),
        ("text", '"lone \\ud83d!"', "lone \ufffd!"),
        ("text", '"C:\\work"', "C:\\work"),
        ("unknown", "1e400", "1e400"),
    ],
)
def test_a_json_value_takes_the_type_of_its_schema(
    key: str, written: str, value: Any
) -> None:
    text = '<tool_call>{"name": "f", "arguments": {"%s": %s}}</tool_call>'
    found = read(text % (key, written), "json_tools", step=1)

    if written == "1e400":
        assert found.calls == [("f", '{"unknown":1e400}')]
        return
    assert found.values == [("f", {key: value})]
    assert type(found.values[0][1][key]) is type(value)
