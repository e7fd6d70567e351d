# SPDX-License-Identifier: Apache-2.0
"""Where splashpy keeps its files.

Two variables move them, for every entry point alike: ``SPLASHPY_HOME`` puts everything
under one directory, ``SPLASHPY_CACHE`` moves what may be deleted at any time. Nothing
is created here; writers create what they need and report a directory that cannot be
written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import platformdirs


@dataclass(frozen=True, slots=True)
class Paths:
    """Directories of one installation.

    Attributes:
        data: built packages and conversations.
        cache: downloads in progress and prompts that were read; may be deleted at
            any time.
        config: ``config.toml``.
        state: locks and running servers.
        log: engine logs.
    """

    data: Path
    cache: Path
    config: Path
    state: Path
    log: Path

    @classmethod
    def default(cls, variables: Mapping[str, str] = os.environ) -> Paths:
        """Where the variables say, else where the platform intends.

        Args:
            variables: the environment.
        """
        home = variables.get("SPLASHPY_HOME")
        paths = cls.under(_directory(home)) if home else cls._of_platform()
        cache = variables.get("SPLASHPY_CACHE")
        return replace(paths, cache=_directory(cache)) if cache else paths

    @classmethod
    def _of_platform(cls) -> Paths:
        dirs = platformdirs.PlatformDirs("splashpy", appauthor=False)
        return cls(
            data=Path(dirs.user_data_dir),
            cache=Path(dirs.user_cache_dir),
            config=Path(dirs.user_config_dir),
            state=Path(dirs.user_state_dir),
            log=Path(dirs.user_log_dir),
        )

    @classmethod
    def under(cls, home: Path) -> Paths:
        """All directories below one."""
        return cls(
            data=home / "data",
            cache=home / "cache",
            config=home / "config",
            state=home / "state",
            log=home / "log",
        )

    @property
    def cached_prompts(self) -> Path:
        """Prompts that were read: states that survive a restart."""
        return self.cache / "kv"

    @property
    def packages(self) -> Path:
        """Built packages, one directory each."""
        return self.data / "packages"

    @property
    def chats(self) -> Path:
        """The database of conversations."""
        return self.data / "chats.db"


def _directory(text: str) -> Path:
    return Path(text).expanduser().absolute()
