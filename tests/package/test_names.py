# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from splashpy.errors import UsageError
from splashpy.package import names


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *(("./x", "directory"), ("/x", "directory"), ("../x", "directory")),
        *((".", "directory"), ("~/x", "directory")),
        *(("owner/repo", "hub"), ("owner/repo@main", "hub")),
        *(("demo", "short"), ("qwen3.8-27b", "short")),
    ],
)
def test_the_form_of_a_name_says_what_it_is(text: str, kind: str) -> None:
    assert names.parse(text).kind == kind


def test_home_is_expanded() -> None:
    assert names.parse("~/models/x").path == Path.home() / "models" / "x"


def test_repository_and_revision_are_taken_apart() -> None:
    name = names.parse("Qwen/Qwen3-4B@refs/pr/1")

    assert (name.repo, name.revision) == ("Qwen/Qwen3-4B", "refs/pr/1")
    assert names.parse("Qwen/Qwen3-4B").revision is None


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "a/b/c", "owner/", "a/@x", "owner/repo@", "demo@main"),
        *("owner/repo@../../x", "owner/repo@a/../b", "-owner/repo", "owner/re po"),
    ],
)
def test_other_forms_are_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="is not a model"):
        names.parse(text)


def test_a_short_name_has_no_case() -> None:
    demo = names.known("Demo")

    assert demo is not None
    assert demo.recipe == "smollm2-135m"
    assert names.known("smollm2-135m") == demo


def test_the_nearest_three_names_are_offered() -> None:
    error = names.unknown("qwen3.8", ["demo", "qwen3.8-27b", "qwen3.6-35b-a3b", "x"])

    assert error.why == "nearest names: qwen3.8-27b, qwen3.6-35b-a3b, demo"


@pytest.mark.parametrize(
    ("gguf", "commands"),
    [
        (
            "./my models/a.Q4_0.gguf",
            [
                "splashpy pack './my models/a.Q4_0.gguf' -o ./a.Q4_0",
                "splashpy run ./a.Q4_0 -p Hello.",
            ],
        ),
        (
            "owner/repo@v1:more/b.gguf",
            [
                "splashpy pack owner/repo@v1:more/b.gguf -o ./b",
                "splashpy run ./b -p Hello.",
            ],
        ),
    ],
)
def test_the_commands_for_a_gguf_file_can_be_typed(
    gguf: str, commands: list[str]
) -> None:
    assert names.how_to_pack(gguf) == commands
