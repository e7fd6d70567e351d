# SPDX-License-Identifier: Apache-2.0
"""A model hub on this computer: as much of its protocol as a download needs.

Files have their SHA-256 as ETag, as large files of the real Hub have.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from huggingface_hub import constants

COMMIT = "d" * 40


def point_at(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """What ``HF_ENDPOINT`` does when huggingface_hub is imported."""
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


@dataclass
class Repository:
    """What the hub has under one name.

    Attributes:
        files: path to content.
        status, error_code: how every request is refused; 200 refuses none.
        cut_at: position in a file at which the connection is closed; None never.
        license, base_model: of the model card.
        swapped: content sent in place of the announced one.
    """

    files: dict[str, bytes]
    status: int = 200
    error_code: str = ""
    cut_at: int | None = None
    license: str = "apache-2.0"
    base_model: str = ""
    swapped: dict[str, bytes] = field(default_factory=dict)


@dataclass
class HubServer:
    """Repositories by name, and the requests that came."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    url: str = ""

    def __enter__(self) -> HubServer:
        hub = self

        class Handler(_Handler):
            server_hub = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server_hub: HubServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # the name http.server calls
        self._answer(body=True)

    def do_HEAD(self) -> None:  # as above
        self._answer(body=False)

    def log_message(self, format: str, *_: Any) -> None:  # noqa: A002  # its name there
        pass

    def _answer(self, *, body: bool) -> None:
        path = self.path.split("?")[0]
        wanted = self.headers.get("Range", "")
        self.server_hub.requests.append((self.command, path, wanted))
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+?)(/(revision|tree)/.+)?", path)
        file = re.fullmatch(r"/(?:datasets/)?([^/]+/[^/]+)/resolve/[^/]+/(.+)", path)
        match = api or file
        name = match[1] if match else ""
        repository = self.server_hub.repositories.get(name)
        if repository is None:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, body=body)
        elif repository.status != 200:
            code = {"X-Error-Code": repository.error_code}
            self._send(repository.status, b"{}", code, body=body)
        elif file:
            self._send_file(repository, file[2], wanted, body=body)
        elif api and api[3] == "tree":
            self._send(200, _json(_tree(repository)), {}, body=body)
        else:
            self._send(200, _json(_info(name, repository)), {}, body=body)

    def _send_file(
        self, repository: Repository, path: str, wanted: str, *, body: bool
    ) -> None:
        content = repository.files.get(path)
        if content is None:
            code = {"X-Error-Code": "EntryNotFound"}
            self._send(404, b"{}", code, body=body)
            return
        headers = {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Repo-Commit": COMMIT,
        }
        content = repository.swapped.get(path, content)
        status, start = 200, 0
        if wanted:
            status, start = 206, int(wanted.removeprefix("bytes=").rstrip("-"))
            headers["Content-Range"] = f"bytes {start}-/{len(content)}"
            content = content[start:]
        cut = repository.cut_at
        cut = None if cut is None else max(0, cut - start)
        self._send(status, content, headers, body=body, cut=cut)

    def _send(
        self,
        status: int,
        content: bytes,
        headers: dict[str, str],
        *,
        body: bool,
        cut: int | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content if cut is None else content[:cut])
            self.close_connection = cut is not None and cut < len(content)


def _json(data: Any) -> bytes:
    return json.dumps(data).encode()


def _info(name: str, repository: Repository) -> dict[str, Any]:
    return {
        "id": name,
        "sha": COMMIT,
        "gated": False,
        "private": False,
        "tags": [],
        "downloads": 0,
        "cardData": {
            "license": repository.license,
            "base_model": repository.base_model or None,
        },
        "siblings": [
            {"rfilename": path, "size": len(content)}
            for path, content in repository.files.items()
        ],
    }


def _tree(repository: Repository) -> list[dict[str, Any]]:
    return [
        {
            "type": "file",
            "path": path,
            "size": len(content),
            "oid": hashlib.sha1(content).hexdigest(),
            "lfs": {
                "oid": hashlib.sha256(content).hexdigest(),
                "size": len(content),
                "pointerSize": 134,
            },
        }
        for path, content in repository.files.items()
    ]
