# SPDX-License-Identifier: Apache-2.0
"""Rows of the table of options that ``splashpy serve`` and its companions take."""

from __future__ import annotations

from splashpy.cli import values
from splashpy.cli.option import Option

PORT = 8000


def effort_pair(value: str) -> tuple[str, str]:
    """``ASKED=MEANT``, two words for a reasoning effort.

    Raises:
        ValueError: the text is not that.
    """
    asked, mark, meant = value.partition("=")
    if not (asked and mark and meant):
        raise ValueError("ASKED=MEANT, as in high=medium")
    return asked, meant


def minutes_or_never(value: str) -> float:
    """Minutes above 0, or ``never``, which is 0.

    Raises:
        ValueError: the text is neither.
    """
    if value == "never":
        return 0.0
    try:
        return values.decimal(0, above=True)(value)
    except ValueError:
        raise ValueError("minutes above 0, or never") from None


SERVER_ROWS: dict[str, tuple[Option, ...]] = {
    "Server": (
        Option(
            "--host",
            "address to listen at",
            "ADDRESS",
            values.text,
            default="127.0.0.1 and ::1",
            variable="SPLASHPY_HOST",
        ),
        Option(
            "--port",
            "port; 0 takes a free one",
            "N",
            values.integer(0, 65535),
            default=str(PORT),
            variable="SPLASHPY_PORT",
        ),
        Option("--url", "use the OpenAI endpoint there", "URL", values.text),
        Option(
            "--api-key",
            "key clients must show",
            "KEY",
            values.text,
            default="none on this machine",
            variable="SPLASHPY_API_KEY",
        ),
        Option("--no-auth", "let other machines in without a key", rare=True),
        Option(
            "--served-model-name",
            "name of the model (repeat)",
            "NAME",
            values.text,
            repeat=True,
        ),
        Option("--strict-model", "refuse requests for other models", rare=True),
        Option(
            "--allowed-host",
            "name to answer to (repeat)",
            "NAME",
            values.text,
            repeat=True,
        ),
        Option(
            "--allowed-origin",
            "web page that may call (repeat)",
            "ORIGIN",
            values.text,
            repeat=True,
        ),
        Option(
            "--default-effort",
            "reasoning where none is asked for",
            "LEVEL",
            values.text,
            default="the model's",
        ),
        Option(
            "--effort-map",
            "another effort than asked (repeat)",
            "A=B",
            effort_pair,
            repeat=True,
            rare=True,
        ),
        Option(
            "--max-output-tokens",
            "longest answer",
            "N|NK",
            values.tokens(1),
            default="what the context leaves",
        ),
        Option(
            "--max-reasoning-tokens",
            "longest reasoning before an answer",
            "N|NK",
            values.tokens(0),
            default="no limit",
            rare=True,
        ),
        Option(
            "--max-concurrent",
            "requests that run at a time",
            "N",
            values.integer(1),
            default="4 if they fit",
        ),
        Option(
            "--max-queue",
            "requests that may wait",
            "N",
            values.integer(0),
            default="16",
        ),
        Option(
            "--max-request-size",
            "largest body",
            "SIZE",
            values.some_size,
            default="64M",
            rare=True,
        ),
        Option(
            "--request-timeout",
            "seconds one request may take",
            "S",
            values.decimal(0, above=True),
            default="3600",
            rare=True,
        ),
        Option(
            "--keepalive",
            "longest silence in a stream, in seconds",
            "S",
            values.decimal(0, above=True),
            default="5",
            rare=True,
        ),
        Option(
            "--unload-after",
            "free memory after M idle minutes",
            "M|never",
            minutes_or_never,
            default="never",
        ),
        Option("--request-log", "one line for each request, no text"),
        Option("--ollama", "answer in Ollama's dialect too"),
        Option("--lmstudio", "answer in LM Studio's dialect too"),
        Option("--all", "every server", key="every"),
        Option("--print-env", "print what would be set, start nothing"),
    ),
}
