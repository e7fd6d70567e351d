# SPDX-License-Identifier: Apache-2.0
"""One file of a dataset on the Hugging Face hub, and the rows in it.

Rows as lines of JSON need nothing more; those in Parquet need pyarrow, which splashpy
does not bring.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from splashpy.errors import IntegrityError, OfflineError, UsageError
from splashpy.package.hub import _hub
from splashpy.package.hub_errors import mapped


def dataset_file(repo: str, file: str, *, offline: bool) -> tuple[Path, str]:
    """Download a file of a dataset, or find it in the cache.

    Args:
        repo: ``OWNER/REPO``.
        file: its path there.
        offline: use the cache only.

    Returns:
        Where it is, and the commit it is of.

    Raises:
        ModelUnknownError: no such dataset.
        OfflineError: offline and not in the cache.
        SplashError: no answer, no access, no place for it.
    """
    hub = _hub()
    found = hub.try_to_load_from_cache(repo, file, repo_type="dataset")
    if not isinstance(found, str):
        if offline:
            raise OfflineError(
                f"{file} of {repo} is not on this computer, and offline mode forbids a "
                "download",
                fix=["leave --offline out, or --suite quick, which needs no download"],
            )
        with mapped(f"the dataset {repo}"):
            found = hub.hf_hub_download(repo, file, repo_type="dataset")
    path = Path(found)
    return path, _commit(path)


def rows(path: Path) -> list[dict[str, Any]]:
    """Every row of a ``.jsonl`` or ``.parquet`` file.

    Raises:
        UsageError: it is a Parquet file and pyarrow is missing.
        IntegrityError: it cannot be read.
    """
    if path.suffix == ".parquet":
        return _parquet_rows(path)
    try:
        # Not splitlines: a string in JSON may hold other separators of lines.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
        found = [json.loads(line) for line in lines if line.strip()]
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{path}: {error}") from None
    if not all(isinstance(row, dict) for row in found):
        raise IntegrityError(f"{path}: a line is no JSON object")
    return found


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    try:
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError(
            "this suite is kept in Parquet, and pyarrow is not installed",
            fix=["pip install pyarrow", "--suite quick, math500 or mt-bench"],
        ) from None
    try:
        return parquet.read_table(path).to_pylist()
    except (ValueError, OSError) as error:  # what pyarrow's own errors derive from
        raise IntegrityError(f"{path}: {error}") from None


def _commit(path: Path) -> str:
    """The folder below ``snapshots`` in the cache's layout."""
    parts = path.parts
    return parts[parts.index("snapshots") + 1] if "snapshots" in parts else ""
