# SPDX-License-Identifier: Apache-2.0
"""Where splashpy keeps its files.

``Paths.default()`` follows the platform; ``Paths.under(home)`` puts everything under
one directory (``SPLASHPY_HOME``). Nothing is created here; writers create what they
need and report a directory that cannot be written.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import platformdirs


@dataclass(frozen=True, slots=True)
class Paths:
    """Directories of one installation.

    Attributes:
        data: built packages and conversations.
        cache: downloads in progress and calibration; may be deleted at any time.
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
    def default(cls) -> Paths:
        """Directories the platform intends for an application of this name."""
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
    def packages(self) -> Path:
        """Built packages, one directory each."""
        return self.data / "packages"
