# SPDX-License-Identifier: Apache-2.0
"""Whether the repository of a model in use has moved on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tiny
from commandline import Call
from package import hub_server
from package.hub_server import COMMIT, HubServer, Repository

from splashpy.cli import update_check
from splashpy.cli.update_check import UpdateCheck
from splashpy.package import names

RUN = ("run", "owner/model", "-p", "hello", "--max-tokens", "2")
NEWER = "e" * 40


@pytest.fixture
def hub(
    call: Call, server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> HubServer:
    """A hub with a model that is installed here; commands wait for its answer."""
    model = tiny.write_model(tmp_path / "model")
    files = {path.name: path.read_bytes() for path in model.iterdir()}
    server.repositories["owner/model"] = Repository(files)
    assert call("pull", "owner/model", "-y").code == 0
    shutil.rmtree(model)

    def answered(wish: names.ModelName, installed: str) -> UpdateCheck:
        check = UpdateCheck(wish, installed)
        check.thread.join()
        return check

    monkeypatch.setattr(update_check, "UpdateCheck", answered)
    server.requests.clear()
    return server


def test_a_newer_revision_is_told_after_the_answer(
    call: Call, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_server, "COMMIT", NEWER)
    result = call(*RUN)
    assert result.code == 0
    assert "newer revision, eeeeeee instead of ddddddd" in result.err
    assert "splashpy pull owner/model" in result.err
    assert len(hub.requests) == 1, "asked once"


def test_the_newest_revision_is_not_worth_a_word(call: Call, hub: HubServer) -> None:
    result = call(*RUN)
    assert result.code == 0
    assert "revision" not in result.err
    assert len(hub.requests) == 1


def test_a_hub_that_does_not_answer_stops_nothing(call: Call, hub: HubServer) -> None:
    hub.repositories["owner/model"].status = 503
    result = call(*RUN)
    assert result.code == 0
    assert "could not ask the Hub for a newer owner/model" in result.err


def test_whatever_goes_wrong_while_it_asks_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def break_down(*_: object, **__: object) -> str:
        raise OSError("no such thing")

    monkeypatch.setattr("splashpy.package.hub.newest_commit", break_down)
    check = UpdateCheck(names.parse("owner/model"), COMMIT)
    check.thread.join()
    assert "could not ask the Hub for a newer owner/model" in check.answer
    assert "no such thing" in check.answer


@pytest.mark.parametrize("flag", ["--offline", "--no-update-check"])
def test_nobody_is_asked_where_that_is_forbidden(
    call: Call, hub: HubServer, flag: str
) -> None:
    assert call(*RUN, flag).code == 0
    assert hub.requests == []


def test_a_commit_never_moves(call: Call, hub: HubServer) -> None:
    assert call(*RUN, "--revision", COMMIT).code == 0
    assert hub.requests == []
