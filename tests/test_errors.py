# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from splashpy import errors
from splashpy.protocol import Failure, error_fields

KINDS = errors._all_kinds(errors.SplashError)


def test_the_tree_in_the_docstring_names_every_error_with_its_exit_code() -> None:
    tree = errors.__doc__ or ""
    for kind in KINDS:
        (line,) = [row for row in tree.splitlines() if f" {kind.__name__} " in row]
        if "exit" in line:
            assert line.split()[-1] == str(kind.exit_code), line


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_survives_the_way_to_another_process(
    kind: type[errors.SplashError],
) -> None:
    if kind is errors.RequestCancelled:
        return
    error = kind("what", why="because 1 > 0", fix=["do this"])
    back = errors.error_from(Failure(**error_fields(error)))
    assert back.code == error.code
    assert back.exit_code == error.exit_code
    assert (back.message, back.why, back.fix) == ("what", "because 1 > 0", ("do this",))


def test_an_unknown_code_is_an_internal_error() -> None:
    back = errors.error_from(Failure(code="E-NEW", message="m"))
    assert isinstance(back, errors.InternalError)
