# SPDX-License-Identifier: Apache-2.0
"""Every error splashpy raises for a person, drawn as a tree.

::

    SplashError                     the command line prints it, without a traceback
    ├── UsageError                  the call or its values are wrong        exit 2
    │   └── ConstraintError         what an answer must follow is unusable  exit 2
    ├── PackageError                a model cannot be used                  exit 3
    │   ├── ModelUnknownError       no such name                            exit 3
    │   ├── ModelMissingError       known, not installed                    exit 3
    │   ├── ModelKindError          not something splashpy can run          exit 3
    │   ├── RemoteCodeError         the repository wants to run its code    exit 3
    │   ├── PairError               target and drafter do not fit           exit 3
    │   ├── IntegrityError          a file is damaged or incomplete         exit 5
    │   └── VersionError            written by a newer or unknown format    exit 1
    ├── CapacityError               more memory or context than there is    exit 4
    │   ├── ShortageError           what a request needs is in use          exit 4
    │   ├── ContextLengthError      prompt + answer exceed the context      exit 4
    │   └── DiskSpaceError          not enough free disk                    exit 4
    ├── NetworkError                the network is needed and unavailable   exit 6
    │   ├── OfflineError            offline mode forbids it                 exit 6
    │   ├── HubError                no answer from the source               exit 6
    │   └── DownloadError           a transfer broke                        exit 6
    ├── AuthorisationError          gated repository or wrong key           exit 8
    ├── LosslessError               speculation changed the output          exit 5
    ├── RegressionError             a measured figure fell                  exit 5
    ├── DraftCheckError             training and drafting do not agree      exit 5
    ├── TemplateError               chat template missing or failing        exit 1
    ├── PermissionDeniedError       a directory cannot be written           exit 1
    ├── TerminalError               a terminal is needed                    exit 2
    ├── NotFoundError               no such saved conversation              exit 3
    ├── DatabaseError               saved conversations cannot be used      exit 1
    ├── InputFileError              a file named by the person is unusable  exit 3
    ├── ProgramMissingError         a program to start is not installed     exit 3
    ├── ExtractError                the answer holds no code block          exit 1
    ├── ModelResultError            the model computed NaN                  exit 1
    ├── RequestCancelled            nobody is waiting any more; never shown
    ├── ServerError                 a server cannot be started or found     exit 7
    │   ├── PortError               the port is taken                       exit 7
    │   └── NoServerError           no server answers                       exit 7
    ├── EngineDiedError             the engine process ended                exit 9
    │   └── EngineStuckError        the engine does not answer              exit 9
    └── InternalError               a bug                                   exit 1

A mistake inside the library (wrong shape, wrong length) is a plain ``ValueError``:
it is a bug, and a traceback is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class SplashError(Exception):
    """A failure a person can act on.

    Args:
        message: what happened, with the values that matter.
        why: the reason, with numbers; empty when the message says it all.
        fix: commands or steps that help, each usable as printed.
    """

    code: ClassVar[str] = "E-INTERNAL"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, why: str = "", fix: Sequence[str] = ()):
        super().__init__(message)
        self.message = message
        self.why = why
        self.fix = tuple(fix)


class UsageError(SplashError):
    """The call or one of its values is wrong."""

    code = "E-USAGE"
    exit_code = 2


class TerminalError(SplashError):
    """A terminal is needed and there is none."""

    code = "E-TTY"
    exit_code = 2


class InputFileError(SplashError):
    """A file named on the command line is missing, unreadable or not text."""

    code = "E-FILE"
    exit_code = 3


class NotFoundError(SplashError):
    """No saved conversation has this name."""

    code = "E-NOT-FOUND"
    exit_code = 3


class DatabaseError(SplashError):
    """The file of saved conversations cannot be used."""

    code = "E-DB"


class ProgramMissingError(SplashError):
    """A program splashpy shall start is not installed."""

    code = "E-PROGRAM"
    exit_code = 3


class ExtractError(SplashError):
    """The answer holds no fenced code block to extract."""

    code = "E-EXTRACT"


class PackageError(SplashError):
    """A model, drafter or package cannot be used."""

    code = "E-MODEL-KIND"
    exit_code = 3


class ModelUnknownError(PackageError):
    """No model has this name."""

    code = "E-MODEL-UNKNOWN"


class ModelMissingError(PackageError):
    """The model is known but not installed."""

    code = "E-MODEL-MISSING"


class ModelKindError(PackageError):
    """The files are not a target, package or drafter splashpy supports."""

    code = "E-MODEL-KIND"


class RemoteCodeError(PackageError):
    """The repository ships Python it wants executed; splashpy never does that."""

    code = "E-CODE"


class PairError(PackageError):
    """Target and drafter do not belong together."""

    code = "E-PAIR"


class IntegrityError(PackageError):
    """A file is damaged, incomplete, or differs from its recorded digest."""

    code = "E-HASH"
    exit_code = 5


class VersionError(PackageError):
    """The package was written for another version of the format."""

    code = "E-VERSION"
    exit_code = 1


class CapacityError(SplashError):
    """More memory is needed than there is."""

    code = "E-FIT"
    exit_code = 4


class ShortageError(CapacityError):
    """Memory a running request needs is taken; less of it may be later."""

    code = "E-MEMORY"


class ContextLengthError(CapacityError):
    """Prompt and answer together exceed the context.

    ``prompt_tokens``: how long the prompt is; 0 where that is not known.
    """

    code = "E-CONTEXT"
    prompt_tokens: int = 0


class DiskSpaceError(CapacityError):
    """Not enough free disk."""

    code = "E-DISK"


class NetworkError(SplashError):
    """The network is needed and not available."""

    code = "E-HUB"
    exit_code = 6


class OfflineError(NetworkError):
    """Offline mode forbids what is needed."""

    code = "E-OFFLINE"


class HubError(NetworkError):
    """The source of the files does not answer."""

    code = "E-HUB"


class DownloadError(NetworkError):
    """A transfer broke."""

    code = "E-DOWNLOAD"


class AuthorisationError(SplashError):
    """The repository is gated or private, or a key is wrong."""

    code = "E-AUTH"
    exit_code = 8


class LosslessError(SplashError):
    """Speculation changed the output."""

    code = "E-LOSSLESS"
    exit_code = 5


class RegressionError(SplashError):
    """A measured figure is worse than an earlier one, by more than is allowed."""

    code = "E-REGRESSION"
    exit_code = 5


class DraftCheckError(SplashError):
    """The engine accepts other drafts than the trainer expects."""

    code = "E-DRAFT-CHECK"
    exit_code = 5


class TemplateError(SplashError):
    """The chat template is missing or fails on these messages."""

    code = "E-TEMPLATE"


class ConstraintError(UsageError):
    """An answer cannot be made to look as was asked."""

    code = "E-CONSTRAINT"


class PermissionDeniedError(SplashError):
    """A directory or file cannot be written."""

    code = "E-PERM"


class ModelResultError(SplashError):
    """The model computed values that are not numbers for one request."""

    code = "E-NAN"


class RequestCancelled(SplashError):  # noqa: N818 - not a failure
    """The request was cancelled; the engine answers it with ``cancelled``."""

    def __init__(self) -> None:
        super().__init__("cancelled")


class ServerError(SplashError):
    """A server cannot be started, found or stopped."""

    code = "E-SERVER"
    exit_code = 7


class PortError(ServerError):
    """The port is taken, or the address is not of this machine."""

    code = "E-PORT"


class NoServerError(ServerError):
    """No server of splashpy answers."""

    code = "E-NO-SERVER"


class EngineDiedError(SplashError):
    """The engine process ended without being asked to."""

    code = "E-ENGINE-DIED"
    exit_code = 9


class EngineStuckError(EngineDiedError):
    """The engine process does not answer."""

    code = "E-ENGINE-STUCK"


class InternalError(SplashError):
    """A bug in splashpy."""

    code = "E-INTERNAL"


def error_from(failure: Any) -> SplashError:
    """The error a :class:`~splashpy.protocol.Failure` event carries.

    Args:
        failure: an object with ``code``, ``message``, ``why`` and ``fix``.
    """
    kind = next(
        (each for each in _all_kinds(SplashError) if each.code == failure.code),
        InternalError,
    )
    error = SplashError.__new__(kind)
    SplashError.__init__(error, failure.message, why=failure.why, fix=failure.fix)
    return error


def _all_kinds(kind: type[SplashError]) -> list[type[SplashError]]:
    found = []
    for child in kind.__subclasses__():
        found += [child, *_all_kinds(child)]
    return found
