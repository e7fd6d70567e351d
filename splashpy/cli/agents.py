# SPDX-License-Identifier: Apache-2.0
"""How agents and SDKs are pointed at a server of this machine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources

NO_KEY = "local"  # where a client insists on some key
_LONGEST_ANSWER = 32768


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What a client needs to know.

    Attributes:
        url: of the server, without ``/v1``.
        model: name of the model.
        context: tokens of prompt plus answer.
        key: of the server; empty without one.
    """

    url: str
    model: str
    context: int
    key: str = ""

    @property
    def shown_key(self) -> str:
        """The key, or a word where there is none."""
        return self.key or NO_KEY

    @property
    def answer(self) -> int:
        """Tokens to reserve for an answer."""
        return min(_LONGEST_ANSWER, self.context // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How a program is started.

    Attributes:
        command: its words.
        environment: variables it is given.
        unset: variables it must not see.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()

    def script(self) -> str:
        """The same as lines for a shell."""
        lines = [f"unset {name}" for name in self.unset]
        lines += [
            f"export {name}={shlex.quote(value)}"
            for name, value in self.environment.items()
        ]
        return "\n".join([*lines, shlex.join(self.command)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One program.

    Attributes:
        title: what people call it.
        page: where it is had.
        start: how it is started for a server.
    """

    title: str
    page: str
    start: Callable[[Service], Start]


def _claude(service: Service) -> Start:
    names = ("OPUS", "SONNET", "HAIKU")
    models = {f"ANTHROPIC_DEFAULT_{name}_MODEL": service.model for name in names}
    return Start(
        command=("claude", "--model", service.model, "--disallowedTools", "WebSearch"),
        environment={
            "ANTHROPIC_BASE_URL": service.url,
            # With the address alone, the agent would keep its user's paid login.
            "ANTHROPIC_AUTH_TOKEN": service.shown_key,
            "ANTHROPIC_MODEL": service.model,
            **models,
            "ANTHROPIC_SMALL_FAST_MODEL": service.model,
            "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(service.context),
            "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(service.context),
            "CLAUDE_CODE_USE_BEDROCK": "0",
            "CLAUDE_CODE_USE_VERTEX": "0",
            "CLAUDE_CODE_USE_FOUNDRY": "0",
        },
        unset=("ANTHROPIC_API_KEY",),
    )


def _codex(service: Service) -> Start:
    provider = {
        "name": "splashpy",
        "base_url": f"{service.url}/v1",
        "env_key": "SPLASHPY_API_KEY",
        "wire_api": "responses",
    }
    table = ", ".join(f"{name} = {json.dumps(text)}" for name, text in provider.items())
    settings = {
        "model": json.dumps(service.model),
        "model_provider": '"splashpy"',
        "model_providers.splashpy": f"{{ {table} }}",
        "model_context_window": str(service.context),
        "model_auto_compact_token_limit": str(service.context * 9 // 10),
        "web_search": '"disabled"',
    }
    words = [word for pair in settings.items() for word in ("-c", "=".join(pair))]
    return Start(
        command=("codex", *words),
        environment={"SPLASHPY_API_KEY": service.shown_key},
    )


def _opencode(service: Service) -> Start:
    return Start(
        command=("opencode",),
        environment={"OPENCODE_CONFIG_CONTENT": json.dumps(opencode_config(service))},
    )


def _pi(service: Service) -> Start:
    # Its settings can only be replaced as a whole; an extension adds to them.
    extension = resources.files("splashpy.cli").joinpath("pi_extension.js")
    provider = {**_pi_provider(service), "apiKey": "$SPLASHPY_API_KEY"}
    return Start(
        command=(
            *("pi", "--extension", str(extension)),
            *("--provider", "splashpy", "--model", service.model),
        ),
        environment={
            "SPLASHPY_API_KEY": service.shown_key,
            "SPLASHPY_PI_PROVIDER": json.dumps(provider),
        },
    )


AGENTS: dict[str, Agent] = {
    "claude": Agent(
        title="Claude Code", page="https://claude.com/claude-code", start=_claude
    ),
    "codex": Agent(title="Codex", page="https://github.com/openai/codex", start=_codex),
    "opencode": Agent(title="opencode", page="https://opencode.ai", start=_opencode),
    "pi": Agent(title="pi", page="https://pi.dev", start=_pi),
}
"""The agents ``splashpy launch`` starts, by the name of their program."""


def opencode_config(service: Service) -> dict[str, object]:
    """The content of ``opencode.json``."""
    limits = {
        "context": service.context,
        "input": service.context - service.answer,
        "output": service.answer,
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "splashpy",
        "options": {"baseURL": f"{service.url}/v1", "apiKey": service.shown_key},
        "models": {service.model: {"name": service.model, "limit": limits}},
    }
    return {
        "provider": {"splashpy": provider},
        "model": f"splashpy/{service.model}",
        "small_model": f"splashpy/{service.model}",
    }


def pi_config(service: Service) -> dict[str, object]:
    """The content of ``~/.pi/agent/models.json``."""
    return {"providers": {"splashpy": _pi_provider(service)}}


def _pi_provider(service: Service) -> dict[str, object]:
    model = {
        "id": service.model,
        "name": service.model,
        "contextWindow": service.context,
        "maxTokens": service.answer,
        "reasoning": True,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    }
    return {
        "baseUrl": f"{service.url}/v1",
        "api": "openai-completions",
        "apiKey": service.shown_key,
        "models": [model],
    }


def llm_config(service: Service) -> str:
    """The content of ``extra-openai-models.yaml``."""
    lines = [
        "- model_id: local",
        f"  model_name: {json.dumps(service.model)}",
        f"  api_base: {service.url}/v1",
        "  supports_tools: true",
        "  supports_schema: true",
    ]
    return "\n".join(lines)


def integrations(service: Service) -> list[tuple[str, str]]:
    """Titles and configurations of everything known, filled in for a server."""
    found = [
        (
            f"{agent.title}: splashpy launch {name}, or in a shell",
            agent.start(service).script(),
        )
        for name, agent in AGENTS.items()
    ]
    url, key = f"{service.url}/v1", service.shown_key
    found += [
        ("pi: ~/.pi/agent/models.json", json.dumps(pi_config(service), indent=2)),
        (
            "OpenAI's SDK and whatever is built on it",
            f"export OPENAI_BASE_URL={url}\nexport OPENAI_API_KEY={shlex.quote(key)}",
        ),
        (
            "Anthropic's SDK",
            f"export ANTHROPIC_BASE_URL={service.url}\n"
            f"export ANTHROPIC_AUTH_TOKEN={shlex.quote(key)}",
        ),
        (
            "aider",
            f"export OPENAI_API_BASE={url}\nexport OPENAI_API_KEY={shlex.quote(key)}\n"
            f"aider --model openai/{shlex.quote(service.model)}",
        ),
        ("llm: extra-openai-models.yaml", llm_config(service)),
        ("llama.vim, llama.vscode", f"{service.url}/infill"),
        ("Zed, VS Code, JetBrains, Xcode: OpenAI-compatible", url),
    ]
    return found
