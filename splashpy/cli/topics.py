# SPDX-License-Identifier: Apache-2.0
"""Pages of ``splashpy help`` that belong to no single command."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import wrap

from splashpy.chat.keys import ACTIONS, spelled
from splashpy.cli.catalogue import CATALOGUE, EXIT_CODES
from splashpy.cli.config import KEYS, KINDS
from splashpy.cli.options import VARIABLES

WIDTH = 80


def exit_codes() -> str:
    """Exit codes and the error codes that lead to them."""
    lines = ["Exit codes of splashpy", ""]
    for code, meaning in EXIT_CODES.items():
        names = [name for name, row in CATALOGUE.items() if row.exit_code == code]
        lines += _entry(
            str(code), meaning + (f" ({', '.join(names)})" if names else ""), 5
        )
    return "\n".join([*lines, "", "splashpy help E-CODE explains an error code."])


def environment() -> str:
    """Environment variables and the configuration file."""
    lines = ["Environment variables", ""]
    for name, effect in VARIABLES.items():
        lines += _entry(name, effect, 22)
    lines += ["", "config.toml, all keys optional", ""]
    for table, rows in KEYS.items():
        if table == "keys":
            lines += _entry("[keys] ACTION", "its keys; see splashpy help keys", 22)
            continue
        for key, (kind, effect) in rows.items():
            lines += _entry(f"[{table}] {key}", f"{effect} ({KINDS[kind]})", 22)
    return "\n".join([*lines, "", *wrap(_PRECEDENCE, WIDTH)])


_PRECEDENCE = (
    "A flag wins over a variable, a variable over config.toml, and that over the "
    "package's own default. config.toml lies in the directory for settings of "
    "applications, or in config/ below SPLASHPY_HOME."
)

MODELS = """\
What MODEL may be

  demo                   a short name; splashpy list --all shows them
  OWNER/REPO             a repository on the Hugging Face hub
  OWNER/REPO@REVISION    a branch, tag or commit of it
  ./model  ~/model  /m   a directory

A model is a package, that is a target with its drafter, or an MLX model that
is a target alone. A GGUF file becomes a package by splashpy pack. Drafters are
known for the architectures of Llama, Qwen3 to Qwen3.8, Gemma 4, gpt-oss, Muse
Glimmer, MiniMax, Kimi K2 and GLM 5; others that mlx-lm has decode plainly and
by lookup. splashpy show MODEL names the drafters published for a model.

Without MODEL: SPLASHPY_MODEL, then [defaults] model of config.toml, then the
only installed model, then demo.

demo is SmolLM2-135M-Instruct. It is built on first use from a 93 MB download;
every other model is fetched by splashpy pull. Weights have licences of their
own; splashpy pull names them before it downloads."""

OFFLINE = """\
Working without the network

--offline, or HF_HUB_OFFLINE=1, forbids every request. An installed model
starts without any; only splashpy pull, the first use of demo, a repository
that is named to be packed or to draft, and the test sets of splashpy bench need
the network. What needs it and may not have it ends with E-OFFLINE, exit code 6.

Online, using a model of the Hub asks once, without waiting for the answer,
whether its repository has moved on; --no-update-check leaves that out.

splashpy sends no telemetry and does not look for newer versions of itself."""

KEYBOARD = """\
Keys

Commands in a terminal:
  Ctrl-C                 stop at the next safe point and print what exists
  Ctrl-C Ctrl-C          stop now
  Ctrl-D                 end of input; leaves splashpy chat --plain

In splashpy chat a paste never sends a message by itself. F1 shows its keys,
and / its commands. Other keys for an action stand in config.toml:

  [keys]
  retry = "f8,alt+r"

"""
_KEY_CELLS = 18


def keys() -> str:
    """Keys of every command, and of every action of the chat."""
    lines = []
    for row in ACTIONS:
        lines += _entry(row.id, f"{spelled(row.keys)}: {row.help}", _KEY_CELLS)
    return KEYBOARD + "\n".join(lines)


SPECULATION = """\
What the numbers of speculation mean

The drafter proposes a block of tokens; the target checks all of them in one
pass and keeps the first ones it agrees with, plus one token of its own. The
answer is the one the target would have written alone.

  cycle      one proposal and the pass that checks it
  accepted   proposed tokens that were kept
  tau        acceptance length: tokens produced after the first one, divided by
             passes. The target's own token counts, so 1 is plain decoding and
             the block size the most a drafter reaches; lookup may exceed it
  lookup     tokens proposed because the text repeats itself, without a drafter
  cached     prompt tokens whose state was still there from the last request

Who drafts: the package's drafter, with lookup where the text repeats itself;
lookup alone where there is no drafter. splashpy run -v says who, and why.

  --draft DIR|REPO   another drafter, made for the same target
  --draft-bits N     its weights in 4 or 8 bits, or unpacked with 16
  --block-size N     tokens one pass may produce, at most as it was trained for
  --no-lookup        no drafts from repeated text
  --lookup           drafts from every repetition, also where a pass of several
                     rows costs more than it is expected to win
  --no-draft         one token at a time

--draft-colors shows accepted drafts in green, the target's own tokens
underlined, lookup in cyan.

splashpy verify MODEL decodes prompts with drafts and without, compares token by
token, and says how many tokens were drafted and accepted on the way; with
--seeds N also for texts that are drawn from seeds."""


def _entry(name: str, text: str, width: int) -> list[str]:
    """A name and its text, wrapped into the column beside it."""
    lines = wrap(text, WIDTH - width - 4)
    return [
        f"  {name if number == 0 else '':<{width}}  {line}"
        for number, line in enumerate(lines)
    ]


TOPICS: dict[str, tuple[str, Callable[[], str]]] = {
    "exit-codes": ("what the exit code says", exit_codes),
    "env": ("environment variables and config.toml", environment),
    "models": ("what MODEL may be", lambda: MODELS),
    "offline": ("working without the network", lambda: OFFLINE),
    "keys": ("keys in commands and in the chat", keys),
    "speculation": ("what the numbers mean", lambda: SPECULATION),
}
"""Topics: one line about each, and what prints it."""
