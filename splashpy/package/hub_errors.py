# SPDX-License-Identifier: Apache-2.0
"""What huggingface_hub and its HTTP client raise, in splashpy's words.

Classes are recognised by name: huggingface_hub 1 and 2 sit on different HTTP clients,
and importing either only to compare classes would slow every command down.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from splashpy.errors import (
    AuthorisationError,
    DiskSpaceError,
    DownloadError,
    HubError,
    ModelUnknownError,
    OfflineError,
    PermissionDeniedError,
    SplashError,
)

_FOREIGN = ("httpx", "httpcore", "hf_xet", "huggingface_hub")
_LONGEST_REASON = 300  # an HTTP error may carry a whole page


@contextmanager
def mapped(asked: str) -> Iterator[None]:
    """Translate errors of the block.

    Args:
        asked: repository and revision, for the messages.

    Raises:
        SplashError: of the class that fits.
    """
    try:
        yield
    except OSError as error:  # huggingface_hub's own errors are OSErrors too
        raise _translated(error, asked) from error
    except Exception as error:
        if not type(error).__module__.startswith(_FOREIGN):
            raise
        raise _translated(error, asked) from error


def _translated(error: Exception, asked: str) -> SplashError:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    for name, make in _BY_NAME:
        if name in kinds:
            return make(error, asked)
    return _by_errno(error, asked)


def _gated(error: Exception, asked: str) -> SplashError:
    return AuthorisationError(
        f"{asked} is gated or private",
        why=_reason(error),
        fix=[f"https://huggingface.co/{asked.split('@')[0]}", "hf auth login"],
    )


def _no_repository(_: Exception, asked: str) -> SplashError:
    return ModelUnknownError(
        f"the Hub has no repository {asked}",
        why="or it is private and this computer is not logged in",
        fix=["splashpy list --all", "hf auth login"],
    )


def _no_revision(_: Exception, asked: str) -> SplashError:
    return ModelUnknownError(f"the Hub has no such revision: {asked}")


def _offline(_: Exception, asked: str) -> SplashError:
    return OfflineError(
        f"{asked} must be downloaded, and HF_HUB_OFFLINE forbids it",
        fix=[f"HF_HUB_OFFLINE=0 splashpy pull {asked}", "splashpy list"],
    )


def _no_answer(error: Exception, asked: str) -> SplashError:
    return HubError(
        f"no answer from the Hub about {asked}",
        why=_reason(error.__cause__ or error),
        fix=[f"splashpy pull {asked}"],
    )


def _refused(error: Exception, asked: str) -> SplashError:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return _gated(error, asked)
    return _no_answer(error, asked)


def _broken(error: Exception, asked: str) -> SplashError:
    return DownloadError(
        f"the download of {asked} broke off; files that arrived whole are kept",
        why=_reason(error),
        fix=[f"splashpy pull {asked}"],
    )


def _by_errno(error: Exception, asked: str) -> SplashError:
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT):
        return DiskSpaceError(
            f"the disk is full while downloading {asked}", why=_reason(error)
        )
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PermissionDeniedError(
            f"the download of {asked} cannot be written", why=_reason(error)
        )
    return _broken(error, asked)


_BY_NAME: tuple[tuple[str, Callable[[Exception, str], SplashError]], ...] = (
    ("GatedRepoError", _gated),
    ("RepositoryNotFoundError", _no_repository),
    ("RevisionNotFoundError", _no_revision),
    ("HFValidationError", _no_repository),
    ("OfflineModeIsEnabled", _offline),
    ("LocalEntryNotFoundError", _no_answer),
    ("HfHubHTTPError", _refused),
    ("ConnectError", _no_answer),
    ("ConnectTimeout", _no_answer),
    ("ProxyError", _no_answer),
)
"""Most specific first: a gated repository is also one that was not found."""


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 3]}..."
