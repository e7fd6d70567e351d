# SPDX-License-Identifier: Apache-2.0
"""One answer in every dialect: the same text, calls, ending and counts.

Each dialect is read the way its clients read it, as a stream and as a whole.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from dialect_kit import CALL, CALLED, DIALECTS, Dialect, Heard
from scripted_engine import Said, Script
from server_kit import Running, until

from splashpy.errors import CapacityError, ModelResultError, ShortageError

SPOKEN: dict[str, tuple[str, int | None, Heard]] = {
    "text": ("</think>Paris é🙂.<|im_end|>", None, Heard("", "Paris é🙂.", [], "stop")),
    "reasoning and text": (
        "Think.</think>\n\nParis.<|im_end|>",
        None,
        Heard("Think.", "Paris.", [], "stop"),
    ),
    "reasoning only": ("Think.<|im_end|>", None, Heard("Think.", "", [], "stop")),
    "one call": (
        f"Look.</think>{CALL}<|im_end|>",
        None,
        Heard("Look.", "", [CALLED], "tool_calls"),
    ),
    "two calls after text": (
        f"</think>I look.\n{CALL}\n{CALL}<|im_end|>",
        None,
        Heard("", "I look.", [CALLED, CALLED], "tool_calls"),
    ),
    "a call that was cut": (
        f"</think>{CALL}",
        41,
        Heard(
            "", "<tool_call>\n<function=look>\n<parameter=where>\nhere", [], "length"
        ),
    ),
    "nothing": ("</think><|im_end|>", None, Heard("", "", [], "stop")),
}


@pytest.fixture(scope="module")
def own(speaker: Any, start: Any) -> Iterator[Running]:
    server = start(speaker, ollama=True, keepalive_seconds=0.05)
    yield server.wait_ready()
    server.__exit__()
    assert server.faults == []


@pytest.fixture
def opened(own: Running, script: Script) -> Iterator[Running]:
    yield own
    until(lambda: own.endpoint.active == 0)


@pytest.mark.parametrize("spoken", SPOKEN)
def test_an_answer_is_the_same_in_every_dialect_and_in_both_forms(
    opened: Running, script: Script, spoken: str
) -> None:
    text, limit, expected = SPOKEN[spoken]
    prompts = set()
    for name, dialect in DIALECTS.items():
        script.say(text, cached=3)

        streamed = opened.post(dialect.path, dialect.ask(limit, stream=True))
        whole = opened.post(dialect.path, dialect.ask(limit, stream=False))

        heard = dialect.hear(streamed.body)
        prompts |= {request.token_ids for request in script.requests}
        prompt, cached, answer = heard.counts
        assert dialect.hear_whole(whole.json).counts == heard.counts, name
        assert prompt == len(script.requests[-1].token_ids), name
        assert cached in (None, 3), name
        assert answer == tokens_of(opened, text, limit), name
        for found in (heard, dialect.hear_whole(whole.json)):
            found.counts, found.quiet = (0, 0, 0), 0
            assert found == expected, name
    assert len(prompts) == 1


def tokens_of(server: Running, text: str, limit: int | None) -> int:
    tokens = server.post("/tokenize", {"content": text}).json["tokens"]
    return min(len(tokens), limit or len(tokens))


@pytest.mark.parametrize(
    ("name", "stop"),
    [
        *((name, "\n<func") for name in DIALECTS),
        # Anthropic's stop sequences of white space only are dropped.
        *((name, "\n\n") for name in DIALECTS if name != "messages"),
    ],
)
def test_a_stop_string_in_text_held_back_to_the_end_ends_the_answer(
    opened: Running, script: Script, name: str, stop: str
) -> None:
    dialect = DIALECTS[name]
    script.say(f"Hm.</think>Paris{stop}")  # and then the budget is used up

    streamed = opened.post(dialect.path, dialect.ask(None, stream=True, stop=[stop]))
    whole = opened.post(dialect.path, dialect.ask(None, stream=False, stop=[stop]))

    for heard in (dialect.hear(streamed.body), dialect.hear_whole(whole.json)):
        assert (heard.reasoning, heard.text, heard.ending) == ("Hm.", "Paris", "stop")
    if name == "messages":
        assert whole.json["stop_sequence"] == stop


@pytest.mark.parametrize("kind", [CapacityError, ShortageError])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", DIALECTS)
def test_a_text_memory_never_suffices_for_is_not_to_be_tried_again(
    opened: Running,
    script: Script,
    name: str,
    kind: type[CapacityError],
    *,
    stream: bool,
) -> None:
    dialect = DIALECTS[name]
    why = "weights 20.0 GB of 21.0 GB"

    def refuse() -> None:
        raise kind("8K tokens of context: needs 2.0 GB more", why=why)

    script.answers = [Said(prefill=refuse)]
    reply = opened.post(dialect.path, dialect.ask(None, stream=stream))

    if kind is ShortageError:  # there may be enough later
        assert reply.status == (529 if name == "messages" else 503)
        assert reply.headers["retry-after"] == "2"
    else:
        assert reply.status == 507
        assert reply.headers["x-should-retry"] == "false"
        assert "retry-after" not in reply.headers
    error = reply.json["error"]
    told = error if isinstance(error, str) else error["message"]
    assert "needs 2.0 GB more" in told
    assert why in told


@pytest.mark.parametrize("name", DIALECTS)
def test_an_error_in_the_middle_is_told_in_every_dialect(
    opened: Running, script: Script, name: str
) -> None:
    dialect = DIALECTS[name]
    script.say("Hm.</think>Begin", ModelResultError("not a number"))

    streamed = opened.post(dialect.path, dialect.ask(None, stream=True))
    whole = opened.post(dialect.path, dialect.ask(None, stream=False))

    assert dialect.hear(streamed.body).ending == "error"
    assert whole.status == 500
    assert "error" in whole.json


@pytest.mark.parametrize("when", ["before the first token", "between two tokens"])
@pytest.mark.parametrize("name", DIALECTS)
def test_silence_is_filled_and_changes_nothing(
    opened: Running,
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    when: str,
) -> None:
    monkeypatch.setattr("splashpy.server.exchange._HEADERS_AFTER", 0.05)
    dialect, go_on = DIALECTS[name], threading.Event()

    def wait() -> None:
        assert go_on.wait(30)

    if when == "before the first token":
        script.answers = [Said(("Hm.</think>One two<|im_end|>",), prefill=wait)]
    else:
        script.say("Hm.</think>One", wait, " two<|im_end|>")
    link = http.client.HTTPConnection("127.0.0.1", opened.port, timeout=30)
    body = json.dumps(dialect.ask(None, stream=True)).encode()
    link.request("POST", dialect.path, body, {"Content-Type": "application/json"})
    received, reply = b"", link.getresponse()
    # The engine goes on only when several frames of silence have arrived.
    while quiet_frames(dialect, received) < 3:
        line = reply.readline()
        assert line, received
        received += line
    go_on.set()
    received += reply.read()
    link.close()

    heard = dialect.hear(received)

    assert heard.quiet >= 3
    assert (heard.reasoning, heard.text, heard.ending) == ("Hm.", "One two", "stop")


def quiet_frames(dialect: Dialect, received: bytes) -> int:
    """How many frames of silence there are in the beginning of a stream."""
    if dialect.path == "/api/chat":
        return received.count(b'"content":""}')
    marks = {
        "/v1/chat/completions": (b'"delta":{},',),
        "/v1/responses": (b"event: response.in_progress", b'"delta":"",'),
        "/v1/messages": (b"event: ping",),
    }
    extra = {"/v1/responses": 1, "/v1/messages": 1}.get(dialect.path, 0)
    return sum(received.count(mark) for mark in marks[dialect.path]) - extra
