# SPDX-License-Identifier: Apache-2.0
"""The clients that are tried for real, and where an installed one is found.

Each has an environment of its own below one directory: ``DIRECTORY/NAME`` is a virtual
environment of Python, or a prefix of npm. npm's clients are run by a Node.js of that
prefix, since several need a newer one than systems bring.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

NODE = "node@22"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client.

    Attributes:
        name: of its directory and of its tests.
        title: what people call it.
        package: what a registry calls it.
        npm: that registry is npm, not PyPI.
    """

    name: str
    title: str
    package: str
    npm: bool = False

    def folder(self, directory: Path) -> Path:
        """Its environment."""
        return directory / self.name

    def programs(self, directory: Path) -> Path:
        """Where the environment keeps what can be run."""
        inside = "node_modules/.bin" if self.npm else "bin"
        return self.folder(directory) / inside

    def version(self, directory: Path) -> str:
        """The installed version; empty where it is not installed."""
        if self.npm:
            facts = self.folder(directory) / "node_modules" / self.package
            facts /= "package.json"
            return json.loads(facts.read_text())["version"] if facts.exists() else ""
        libraries = self.folder(directory).glob("lib/python*/site-packages")
        found = distributions(name=self.package, path=[str(p) for p in libraries])
        return next((one.version for one in found), "")


CLIENTS = (
    Client(name="openai", title="openai (Python)", package="openai"),
    Client(name="anthropic", title="anthropic (Python)", package="anthropic"),
    Client(name="llm", title="llm", package="llm"),
    Client(name="aider", title="aider", package="aider-chat"),
    Client(name="litellm", title="litellm", package="litellm"),
    Client(name="codex", title="Codex", package="@openai/codex", npm=True),
    Client(
        name="claude",
        title="Claude Code",
        package="@anthropic-ai/claude-code",
        npm=True,
    ),
    Client(name="opencode", title="opencode", package="opencode-ai", npm=True),
    Client(name="pi", title="pi", package="@earendil-works/pi-coding-agent", npm=True),
)
