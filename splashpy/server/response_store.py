# SPDX-License-Identifier: Apache-2.0
"""Responses that are remembered, so that a client need not send them again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from splashpy.server.errors import ApiError, to_json

STORE_BYTES = 64 << 20


@dataclass(slots=True)
class ResponseStore:
    """Answers by their id, the oldest forgotten first.

    Attributes:
        limit: bytes of JSON that are kept.
    """

    limit: int = STORE_BYTES
    _kept: OrderedDict[str, tuple[int, list[Any], dict[str, Any]]] = field(
        default_factory=OrderedDict
    )
    _bytes: int = 0

    def put(self, items: list[Any], response: dict[str, Any]) -> None:
        """Keep an answer, with the items that led to it and those it consists of."""
        size = len(to_json(items)) + len(to_json(response))
        self._kept[response["id"]] = (size, items, response)
        self._bytes += size
        while self._bytes > self.limit and self._kept:
            _, (oldest, _, _) = self._kept.popitem(last=False)
            self._bytes -= oldest

    def history(self, response_id: str) -> list[Any]:
        """All items up to and including an answer.

        Raises:
            ApiError: it is not kept; clients then send the whole history.
        """
        if response_id not in self._kept:
            raise ApiError(
                "previous_response_not_found",
                f"Previous response with id '{response_id}' not found.",
                param="previous_response_id",
            )
        self._kept.move_to_end(response_id)
        return self._kept[response_id][1]

    def get(self, response_id: str) -> dict[str, Any]:
        """An answer.

        Raises:
            ApiError: it is not kept.
        """
        if response_id not in self._kept:
            raise ApiError("not_found", f"there is no response {response_id!r}")
        return self._kept[response_id][2]

    def delete(self, response_id: str) -> dict[str, Any]:
        """Forget an answer.

        Raises:
            ApiError: it is not kept.
        """
        self.get(response_id)
        size, _, _ = self._kept.pop(response_id)
        self._bytes -= size
        return {"id": response_id, "object": "response", "deleted": True}
