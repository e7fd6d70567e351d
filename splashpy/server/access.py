# SPDX-License-Identifier: Apache-2.0
"""Who may call: the names the server answers to, web pages, and the key.

A local server is in reach of every web page its user opens. The host check stops pages
that give their own name the address of this machine; the origin check stops all others;
requiring a JSON content type makes browsers ask before they send anything.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping

from splashpy.server.errors import ApiError

_LOCAL = re.compile(
    r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
    r"|(vscode-webview|vscode-file|app|tauri)://.*"
)
_KEY = re.compile(r"[\x21-\x7e]{1,256}")


def usable_key(key: str) -> bool:
    """Whether a key can travel in a header: 1 to 256 visible ASCII characters."""
    return _KEY.fullmatch(key) is not None


def is_loopback(address: str) -> bool:
    """Whether an address is reached from this machine only."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def check_host(
    host: str | None, *, local_address: str, allowed: Iterable[str], bound_to: str
) -> None:
    """Refuse names this server was not told to answer to.

    Args:
        host: the header; None where there is none.
        local_address: of the accepted connection.
        allowed: names beside the local ones.
        bound_to: the address the server listens at.

    Raises:
        ApiError: another name, or none.
    """
    if not host:
        raise ApiError("invalid_value", "the Host header is missing")
    name = _host_name(host)
    if name == "localhost" or name.endswith(".localhost") or name == local_address:
        return
    if is_loopback(name) or name in {item.lower() for item in allowed}:
        return
    if not is_loopback(bound_to) and name == socket.gethostname().lower():
        return
    raise ApiError(
        "host_not_allowed",
        f"this server does not answer to {name!r}; start it with --allowed-host {name}",
    )


def check_origin(
    origin: str | None, host: str, fetch_site: str, allowed: Iterable[str]
) -> None:
    """Refuse web pages that are not local and were not allowed.

    Args:
        origin: the header; None where no page sends the request.
        host: the Host header.
        fetch_site: the Sec-Fetch-Site header, which only browsers send.
        allowed: origins that may call; ``*`` is all.

    Raises:
        ApiError: such a page.
    """
    known = set(allowed)
    if origin is None:
        if fetch_site not in ("cross-site", "same-site") or "*" in known:
            return
        origin = f"a {fetch_site} page"
    elif _is_welcome(origin, host, known):
        return
    raise ApiError(
        "origin_not_allowed",
        f"{origin} may not call this server; --allowed-origin lets it in",
    )


def _is_welcome(origin: str, host: str, allowed: set[str]) -> bool:
    own = origin in (f"http://{host}", f"https://{host}")
    local = _LOCAL.fullmatch(origin) is not None
    return own or local or "*" in allowed or origin in allowed


def check_key(headers: Mapping[str, str], key: str) -> None:
    """Refuse requests that do not show the key, where there is one.

    Raises:
        ApiError: none of the ways a client may show it holds the key.
    """
    if not key:
        return
    scheme, _, token = headers.get("authorization", "").partition(" ")
    shown = [token.strip()] if scheme.lower() == "bearer" else []
    shown += [headers.get("x-api-key", ""), headers.get("api-key", "")]
    wanted = _digest(key)
    matches = [hmac.compare_digest(_digest(item), wanted) for item in shown]
    if not any(matches):
        raise ApiError(
            "invalid_api_key", "this server wants its key: Authorization: Bearer KEY"
        )


def _digest(text: str) -> bytes:
    """Of equal length for all texts, so that comparing tells nothing of it."""
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).digest()


def _host_name(host: str) -> str:
    """The name without port and brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rsplit(":", 1)[0] if host.count(":") == 1 else host
