# SPDX-License-Identifier: Apache-2.0
"""An OpenAI endpoint, measured from outside.

Text is asked for as a stream of server-sent events, so that the first of it has a time.
Tokens are those the endpoint reports; where it reports none, every event with text
counts as one. An endpoint of splashpy also tells what its passes did.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from splashpy.bench.talker import Heard, Messages, Wish
from splashpy.errors import AuthorisationError, NoServerError, ServerError, UsageError
from splashpy.protocol import Spec

_QUIET_SECONDS = 600.0  # without a byte: it will not answer
_SHOWN = 300  # characters of an error that are told
_DENIED = (401, 403)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to ask.

    Attributes:
        url: up to and with ``/v1``.
        model: what requests name.
        key: sent as a bearer token; empty sends none.
    """

    url: str
    model: str
    key: str = ""

    @classmethod
    def find(cls, url: str, model: str | None, key: str = "") -> Endpoint:
        """The endpoint at an address; without a name, its first model.

        Raises:
            UsageError: the address is none.
            ServerError: it lists no model, or does not answer.
            AuthorisationError: it wants another key.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise UsageError(
                f"--url {url}: not an address",
                fix=["--url http://127.0.0.1:8000/v1"],
            )
        found = cls(url.rstrip("/"), model or "", key)
        if model:
            return found
        listed = found._get("/models").get("data")
        names = [each.get("id") for each in listed or [] if isinstance(each, dict)]
        if not names or not isinstance(names[0], str):
            raise ServerError(
                f"{url} lists no model",
                fix=["splashpy bench NAME --url URL, with the name it serves"],
            )
        return cls(found.url, names[0], key)

    def ask(
        self, messages: Messages, wish: Wish, stopping: Callable[[], bool]
    ) -> Heard | None:
        """See :class:`~splashpy.bench.talker.Talker`."""
        began = perf_counter()
        first = last = began
        texts: list[str] = []
        usage: dict[str, Any] = {}
        spec = Spec()
        body = self._body(messages, wish)
        connection, response = self._open("POST", "/chat/completions", body)
        try:
            for event in _events(response, stopping):
                if event is None:
                    return None
                usage = event.get("usage") or usage
                spec = _spec_of(event) or spec
                text = _text_of(event)
                if text:
                    last = perf_counter()
                    first = first if texts else last
                    texts.append(text)
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from None
        finally:
            response.close()
            connection.close()
        return Heard(
            text="".join(texts),
            began=began,
            first=first,
            last=last,
            prompt_tokens=_count(usage.get("prompt_tokens"), 0),
            completion_tokens=_count(usage.get("completion_tokens"), len(texts)),
            spec=spec,
        )

    def _body(self, messages: Messages, wish: Wish) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": wish.max_tokens,
            "temperature": wish.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if wish.top_p != 1.0:
            body["top_p"] = wish.top_p
        if wish.top_k:
            body["top_k"] = wish.top_k
        if wish.seed is not None:
            body["seed"] = wish.seed
        return body

    def _get(self, path: str) -> dict[str, Any]:
        connection, response = self._open("GET", path)
        try:
            found = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._broken(error) from None
        finally:
            response.close()
            connection.close()
        return found if isinstance(found, dict) else {}

    def _open(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        parts = urlsplit(self.url)
        kind = (
            http.client.HTTPSConnection
            if parts.scheme == "https"
            else http.client.HTTPConnection
        )
        connection = kind(parts.netloc, timeout=_QUIET_SECONDS)
        headers = {"Accept": "text/event-stream, application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        payload = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            payload = json.dumps(body)
        try:
            connection.request(method, parts.path + path, payload, headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._broken(error) from None
        if response.status != http.client.OK:
            self._refuse(connection, response)
        return connection, response

    def _refuse(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        try:
            said = response.read(_SHOWN).decode("utf-8", errors="replace").strip()
        except (OSError, http.client.HTTPException):
            said = ""
        finally:
            response.close()
            connection.close()
        message = f"{self.url} answers {response.status} {response.reason}"
        if response.status in _DENIED:
            raise AuthorisationError(
                message, why=said, fix=["--api-key KEY, or SPLASHPY_API_KEY"]
            )
        raise ServerError(message, why=said)

    def _broken(self, error: Exception) -> NoServerError:
        return NoServerError(
            f"{self.url} does not answer",
            why=str(error) or type(error).__name__,
            fix=["splashpy ps lists the servers of splashpy on this machine"],
        )


def _events(
    response: http.client.HTTPResponse, stopping: Callable[[], bool]
) -> Iterator[dict[str, Any] | None]:
    """The JSON of every event; None once, where somebody wished to stop."""
    for line in _lines(response, stopping):
        if line is None:
            yield None
            return
        name, _, value = line.partition(b":")
        if name != b"data":
            continue
        if value.strip() == b"[DONE]":
            return
        try:
            found = json.loads(value)
        except ValueError:
            continue
        if isinstance(found, dict):
            if found.get("error"):
                raise ServerError(
                    "the endpoint gave up in the middle of an answer",
                    why=json.dumps(found["error"])[:_SHOWN],
                )
            yield found


def _lines(
    response: http.client.HTTPResponse, stopping: Callable[[], bool]
) -> Iterator[bytes | None]:
    """Lines as they come; None once, where somebody wished to stop."""
    while not stopping():
        line = response.readline()
        if not line:
            return
        yield line
    yield None


def _text_of(event: dict[str, Any]) -> str:
    """Text of an event, reasoning included."""
    choices = event.get("choices")
    if not isinstance(choices, list) or not choices:
        return ""
    delta = choices[0].get("delta") if isinstance(choices[0], dict) else None
    if not isinstance(delta, dict):
        return ""
    parts = [delta.get(name) for name in ("reasoning_content", "reasoning", "content")]
    return "".join(part for part in parts if isinstance(part, str))


def _spec_of(event: dict[str, Any]) -> Spec | None:
    """What speculation did, where the endpoint is splashpy's and it adds up."""
    told, timings = event.get("splashpy"), event.get("timings")
    if not isinstance(told, dict) or not isinstance(timings, dict):
        return None
    made = told.get("decisions")
    made = made if isinstance(made, dict) else {}
    spec = Spec(
        cycles=_count(told.get("cycles"), 0),
        drafted=_count(timings.get("draft_n"), 0),
        accepted=_count(timings.get("draft_n_accepted"), 0),
        accepted_per_position=_counts(told.get("accept_by_position")),
        drafted_per_position=_counts(told.get("draft_by_position")),
        plain_cycles=_count(made.get("plain"), 0),
        drafter_cycles=_count(made.get("drafter"), 0),
        lookup_cycles=_count(made.get("lookup"), 0),
    )
    falling = [spec.drafter_cycles + spec.lookup_cycles, *spec.accepted_per_position]
    sound = falling == sorted(falling, reverse=True)
    sound &= sum(spec.accepted_per_position) == spec.accepted
    sound &= sum(spec.drafted_per_position) == spec.drafted
    return spec if sound else None


def _counts(value: Any) -> tuple[int, ...]:
    return tuple(_count(each, 0) for each in value) if isinstance(value, list) else ()


def _count(value: Any, other: int) -> int:
    return value if type(value) is int and value >= 0 else other
