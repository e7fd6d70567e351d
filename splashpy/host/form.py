# SPDX-License-Identifier: Apache-2.0
"""Whether an answer became what was asked for.

The grammar an answer follows cannot express everything a JSON Schema may say, such as
items that must differ, so a complete answer is looked at once more.

Patterns are left out here: the grammar holds them, and Python's regular expressions may
take for ever where it does not.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from splashpy.protocol import Constraint

_SEARCHES = '"patternProperties"'


def is_met(constraint: Constraint, text: str) -> bool:
    """Whether a complete answer is what its constraint asks for.

    Args:
        constraint: of the answer.
        text: of the answer; it has followed the constraint's grammar to the end.
    """
    if constraint.kind not in ("json_object", "json_schema"):
        return True
    try:
        value = json.loads(text)
        if constraint.kind == "json_object":
            return isinstance(value, dict)
        if _SEARCHES in constraint.text:
            return True
        return _validator(constraint.text).is_valid(value)
    except (ValueError, RecursionError):
        return False


@functools.lru_cache(maxsize=32)
def _validator(schema: str) -> Any:
    # Few answers need it, and it takes a tenth of a second to import.
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415

    kind = validators.extend(Draft202012Validator, {"pattern": lambda *_: None})
    # An empty registry: nothing is ever fetched.
    return kind(json.loads(schema), registry=Registry())
