# SPDX-License-Identifier: Apache-2.0
"""``pack`` and ``unpack`` on tiny models that are really there."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import tiny
from commandline import Call, Start, finish, read_until
from package.hub_server import HubServer, Repository
from splash_kit import write_tiny_splash

from splashpy.package import published_drafters
from splashpy.package.manifest import Manifest
from splashpy.package.published_drafters import PublishedDrafter
from splashpy.package.splash.formats import FORMATS

CARD = "---\nlicense: {}\n---\n"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tiny.write_model(tmp_path / "target")
    (path / "README.md").write_text(CARD.format("apache-2.0"))
    return path


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    path = tiny.write_drafter(tmp_path / "drafter")
    (path / "README.md").write_text(CARD.format("cc-by-nc-nd-4.0"))
    return path


def test_the_directory_goes_to_stdout_and_the_rest_to_stderr(
    call: Call, target: Path, drafter: Path, tmp_path: Path
) -> None:
    output = tmp_path / "pair"

    result = call("pack", str(target), str(drafter), "-o", str(output))

    assert result.code == 0
    assert result.out == f"{output}\n"
    assert "licences: target Apache-2.0, draft CC-BY-NC-ND-4.0" in result.err
    assert "note: the draft's licence" in result.err
    assert "tokens a cycle, the target's own included" in result.err


def test_what_was_packed_passes_verify_until_a_byte_changes(
    call: Call, target: Path, drafter: Path, tmp_path: Path
) -> None:
    output = tmp_path / "pair"
    call("pack", str(target), str(drafter), "-o", str(output), "--no-check")

    assert call("verify", str(output), "--files", "--full").code == 0

    weights = output / "draft" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    result = call("verify", str(output), "--files", "--full")
    assert result.code == 5
    assert "draft/model.safetensors" in result.err


def test_json_tells_paths_sizes_digests_and_the_acceptance_length(
    call: Call, target: Path, drafter: Path, tmp_path: Path
) -> None:
    output = tmp_path / "pair"

    result = call("pack", str(target), str(drafter), "-o", str(output), "--json")

    manifest = Manifest.open(output)
    document = result.json
    assert document["schema"] == "splashpy.pack/1"
    assert document["path"] == str(output)
    assert document["files_digest"] == manifest.files_digest
    assert document["bytes"] == manifest.size_bytes
    assert set(document["files"]) == {entry.path for entry in manifest.files}
    assert document["acceptance_length"] >= 1
    assert result.err == ""


def test_a_dry_run_writes_nothing(call: Call, target: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())

    result = call(
        "pack", str(target), "-o", str(tmp_path / "pair"), "--dry-run", "--json"
    )

    assert result.json["dry_run"] is True
    assert result.json["bytes"] > 0
    assert sorted(tmp_path.iterdir()) == before


def test_options_reach_the_package(
    call: Call, target: Path, drafter: Path, tmp_path: Path
) -> None:
    output = tmp_path / "pair"

    result = call(
        *("pack", str(target), str(drafter), "-o", str(output), "--no-check"),
        *("--bits", "8", "--group-size", "32", "--bits-for", "*lm_head=16"),
        *("--bits-for", "*.q_proj=4/64", "--draft-bits", "8", "--name", "other"),
        *("--license-ok", "CC-BY-NC-ND-4.0"),
    )

    assert result.code == 0, result.err
    manifest = Manifest.open(output)
    packed = manifest.target.quantization
    assert packed is not None
    assert (packed.bits, packed.group_size) == (8, 32)
    first = packed.overrides["model.layers.0.self_attn.q_proj"]
    assert (first.bits, first.group_size) == (4, 64)
    assert manifest.draft is not None
    assert manifest.draft.quantization is not None
    assert manifest.draft.quantization.bits == 8
    assert manifest.name == "other"
    assert call("show", str(output), "--json").json["packing"] == {
        "bits": 8,
        "group_size": 32,
        "mode": "affine",
        "modules with 4 bits in groups of 64": 4,
    }


def test_terms_that_forbid_it_are_told_with_the_way_out(
    call: Call, target: Path, drafter: Path, tmp_path: Path
) -> None:
    result = call(
        *("pack", str(target), str(drafter), "-o", str(tmp_path / "pair")),
        *("--draft-bits", "4"),
    )

    assert result.code == 2
    assert "CC-BY-NC-ND-4.0 forbids changed copies" in result.err
    assert "--license-ok" in result.err
    assert not (tmp_path / "pair").exists()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("x",), 2, "-o DIR is missing"),
        (("./nowhere", "-o", "y"), 3, "no such file or directory"),
        (("nosuchmodel", "-o", "y"), 3, "no model is called"),
        (("a/b", "-o", "y", "--offline"), 6, "offline mode"),
        (("x", "-o", "y", "--bits", "5"), 2, "--bits got '5'"),
        (("x", "-o", "y", "--bits-for", "q=3"), 2, "--bits-for got 'q=3'"),
        (("x", "-o", "y", "--bits-for", "q=4/"), 2, "--bits-for got"),
        (("x", "-o", "y", "--vision", "z"), 2, "--vision goes with --format splash"),
        (("x", "-o", "y", "--draft-revision", "z"), 2, "goes with DRAFT"),
    ],
)
def test_what_cannot_work_is_said_at_once(
    call: Call, words: tuple[str, ...], code: int, told: str
) -> None:
    result = call("pack", *words)

    assert result.code == code
    assert told in result.err


def test_unpack_prints_the_parts_and_packing_them_gives_the_same(
    call: Call, target: Path, drafter: Path, tmp_path: Path
) -> None:
    first, parts, again = (tmp_path / name for name in ("first", "parts", "again"))
    call("pack", str(target), str(drafter), "-o", str(first))

    result = call("unpack", str(first), "-o", str(parts))
    assert result.out.split() == [str(parts / "target"), str(parts / "draft")]
    call("pack", str(parts / "target"), str(parts / "draft"), "-o", str(again))

    assert (again / "splashpy.json").read_bytes() == (
        (first / "splashpy.json").read_bytes()
    )
    document = call("unpack", str(first), "-o", str(parts), "--force", "--json").json
    assert document == {
        "schema": "splashpy.unpack/1",
        "target": str(parts / "target"),
        "draft": str(parts / "draft"),
    }


def test_unpack_wants_a_package(call: Call, target: Path, tmp_path: Path) -> None:
    result = call("unpack", str(target), "-o", str(tmp_path / "parts"))

    assert result.code == 3
    assert "is not a package" in result.err


def test_a_wrong_directory_says_what_is_missing(call: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    result = call("pack", str(tmp_path / "empty"), "-o", str(tmp_path / "pair"))

    assert result.code == 3
    assert "config.json" in result.err
    assert "Traceback" not in result.err


def test_ctrl_c_stops_and_the_same_command_goes_on(
    start: Start, call: Call, tmp_path: Path
) -> None:
    target = tiny.write_model(tmp_path / "target", num_hidden_layers=24)
    words = ("pack", str(target), "-o", str(tmp_path / "pair"), "--no-check")
    process = start(*words, "-v")
    read_until(process, b"preparing", of="stderr")
    process.send_signal(signal.SIGINT)

    code, out, err = finish(process)

    if code == 0:  # it was faster than the signal
        assert out == f"{tmp_path / 'pair'}\n"
        return
    assert code == 130
    assert "the same command goes on" in err
    assert not (tmp_path / "pair").exists()
    assert call(*words).code == 0
    assert json.loads((tmp_path / "pair" / "splashpy.json").read_text())["files"]


def test_a_splash_package_is_checked_taken_apart_and_put_together(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splash = write_tiny_splash(tmp_path / "splash", "splash-packed-q4")
    monkeypatch.setitem(FORMATS, splash.row.name, splash.row)
    parts, again = tmp_path / "parts", tmp_path / "again"

    assert call("verify", str(splash.path), "--files", "--full").code == 0
    shown = call("show", str(splash.path), "--json").json
    assert (shown["kind"], shown["has_draft"]) == ("splash", True)
    assert call("unpack", str(splash.path), "-o", str(parts)).code == 0
    result = call(
        *("pack", str(parts / "target"), str(parts / "draft"), "-o", str(again)),
        *("--format", "splash", "--vision", str(parts / "vision" / "model.bin")),
        "--json",
    )

    assert result.code == 0, result.out
    assert result.json["manifest"] == str(again / "manifest.json")
    for path in splash.path.rglob("*.*"):
        name = path.relative_to(splash.path)
        assert (again / name).read_bytes() == path.read_bytes()
    weights = again / "target" / "layer-0.bin"
    content = bytearray(weights.read_bytes())
    content[40000] ^= 1
    weights.write_bytes(content)
    result = call("verify", str(again), "--files", "--full")
    assert result.code == 5
    assert "target/layer-0.bin" in result.err


def repository(directory: Path, **card: str) -> Repository:
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    return Repository(files, **card)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hub's client waits before it asks again for what broke off."""
    monkeypatch.setattr("time.sleep", lambda _: None)


def weights_sent(server: HubServer) -> list[str]:
    return [path for _, path, _ in server.requests if path.endswith("safetensors")]


@pytest.mark.usefixtures("no_pauses")
def test_memory_is_judged_before_the_weights_come(
    call: Call, server: HubServer, target: Path, drafter: Path, tmp_path: Path
) -> None:
    server.repositories["owner/target"] = repository(target)
    server.repositories["owner/drafter"] = repository(drafter)
    server.repositories["owner/drafter"].cut_at = 4000  # its weights break off

    result = call("pack", "owner/target", "owner/drafter", "-o", str(tmp_path / "pair"))

    assert result.code == 6
    told = result.err.splitlines()
    assert told[0].startswith("owner/target: ")
    assert told[1].startswith("owner/drafter: ")
    assert told[0].endswith("to download")
    assert told[2].startswith("memory: fits: ")


def test_a_directory_that_is_in_the_way_is_named_before_a_download(
    call: Call, server: HubServer, target: Path, tmp_path: Path
) -> None:
    server.repositories["owner/target"] = repository(target)
    (tmp_path / "pair").mkdir()
    (tmp_path / "pair" / "letter.txt").write_text("dear")

    result = call("pack", "owner/target", "-o", str(tmp_path / "pair"))

    assert result.code == 2
    assert server.requests == []


def test_a_drafter_that_cannot_be_chosen_is_no_reason_to_download_a_target(
    call: Call, server: HubServer, target: Path, tmp_path: Path
) -> None:
    server.repositories["owner/target"] = repository(target)

    result = call("pack", "owner/target", "auto", "-o", str(tmp_path / "pair"))

    assert result.code == 3
    assert "[E-PAIR]" in result.err
    assert "name DRAFT" in result.err
    assert weights_sent(server) == []


def test_the_published_drafter_is_chosen_by_sizes_and_card(
    call: Call,
    server: HubServer,
    target: Path,
    drafter: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = json.loads((target / "config.json").read_text())
    sizes = {
        "model_types": (config["model_type"],),
        "hidden_size": config["hidden_size"],
        "num_layers": config["num_hidden_layers"],
    }
    made = [
        PublishedDrafter(repo=f"owner/{name}-draft", made_for=name, version=2, **sizes)
        for name in ("Old-1B", "New-1B")
    ]
    monkeypatch.setattr(published_drafters, "PUBLISHED", tuple(made))
    (target / "README.md").write_text("---\nbase_model: maker/New-1B\n---\n")
    server.repositories["owner/target"] = repository(target, base_model="maker/New-1B")
    server.repositories["owner/New-1B-draft"] = repository(drafter)
    output = tmp_path / "pair"

    result = call("pack", "owner/target", "auto", "-o", str(output), "--no-check")

    assert result.code == 0, result.err
    assert "drafter: owner/New-1B-draft, made for New-1B" in result.err
    manifest = Manifest.open(output)
    assert manifest.draft is not None
    assert manifest.draft.source.repo_id == "owner/New-1B-draft"


@pytest.mark.usefixtures("no_pauses")
def test_a_drafter_from_the_hub_is_judged_before_it_comes(
    call: Call, server: HubServer, target: Path, drafter: Path
) -> None:
    server.repositories["owner/drafter"] = repository(drafter)
    server.repositories["owner/drafter"].cut_at = 4000

    result = call("run", str(target), "hi", "--draft", "owner/drafter")

    assert result.code == 6
    assert result.err.splitlines()[0].endswith("to download")
    assert result.err.splitlines()[1].startswith("memory: fits: ")


@pytest.mark.parametrize("command", ["run", "verify", "show", "rm"])
def test_a_gguf_file_is_refused_with_the_commands_that_pack_it(
    call: Call, command: str, tmp_path: Path
) -> None:
    file = tmp_path / "small.Q4_0.gguf"
    file.write_bytes(b"GGUF")

    words = (command, str(file), *(("hi",) if command == "run" else ()))
    result = call(*words)

    assert result.code == 3
    assert f"splashpy pack {file} -o ./small.Q4_0" in result.err
    assert "splashpy run ./small.Q4_0" in result.err
    missing = call(command, "./nowhere.gguf", *words[2:])
    assert missing.code == 3
    assert "no such file" in missing.err
