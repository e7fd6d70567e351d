# SPDX-License-Identifier: Apache-2.0
"""``list``, ``show``, ``rm`` and ``pull``, on a tiny model that is really there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tiny
from commandline import Call, Start, finish, on_terminal

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "tiny/llama"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def downloaded(clean_environment: Path, model: Path) -> Path:
    """The tiny model as a download in this test's Hugging Face cache."""
    repository = clean_environment / "hf" / "hub" / "models--tiny--llama"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for file in model.iterdir():
        (snapshot / file.name).write_bytes(file.read_bytes())
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return snapshot


def test_show_prints_facts_of_a_directory(call: Call, model: Path) -> None:
    result = call("show", str(model))

    facts = dict(line.split(None, 1) for line in result.out.splitlines())
    assert result.code == 0
    assert facts["path"] == str(model)
    assert facts["layers"] == "4"
    assert facts["hidden_size"] == "64"
    assert "model.safetensors" in result.out


def test_show_json_gives_the_path_and_the_files(call: Call, model: Path) -> None:
    document = call("show", str(model), "--json").json

    assert document["schema"] == "splashpy.show/1"
    assert document["path"] == str(model)
    assert document["model_type"] == "llama"
    size = (model / "model.safetensors").stat().st_size
    assert document["files"]["model.safetensors"] == size


def test_show_names_the_drafters_published_for_a_target_of_these_sizes(
    call: Call, model: Path, tmp_path: Path
) -> None:
    assert call("show", str(model), "--json").json["published_drafters"] == []

    renamed = tmp_path / "whatever"
    shutil.copytree(model, renamed)
    config = json.loads((model / "config.json").read_text())
    sizes = {"hidden_size": 5120, "num_hidden_layers": 64, "vocab_size": 248320}
    config |= {"model_type": "qwen3_5", **sizes}
    (renamed / "config.json").write_text(json.dumps(config))

    lines = call("show", str(renamed)).out.splitlines()
    drafters = [line for line in lines if line.startswith("drafter ")]
    assert len(drafters) == 2  # of two generations with the same sizes
    assert "incoai/Qwen3.8-27B-DFlash2 (DFlash 2, Apache-2.0)" in drafters[0]
    assert "qwen3_5 of width 5120 with 64 layers" in drafters[0]
    found = call("show", str(renamed), "--json").json["published_drafters"]
    assert found[0]["repo"] == "incoai/Qwen3.8-27B-DFlash2"
    assert found[0]["licence"] == "Apache-2.0"


def test_show_quietly_prints_the_path_alone(call: Call, model: Path) -> None:
    assert call("show", str(model), "-q").out == f"{model}\n"


def test_nothing_installed_is_an_empty_list_and_a_hint(call: Call) -> None:
    result = call("list")

    assert (result.code, result.out) == (
        0,
        "MODEL\tSIZE\tKIND\tCONTEXT\tFITS\tDRAFT\tLAST USED\n",
    )
    assert "splashpy pull demo" in result.err


def test_list_all_adds_what_can_be_pulled(call: Call) -> None:
    models = call("list", "--all", "--json").json["models"]

    assert next(model["name"] for model in models if not model["installed"]) == "demo"


@pytest.mark.e2e
@pytest.mark.usefixtures("downloaded")
def test_list_has_a_row_for_a_downloaded_model(start: Start) -> None:
    code, out, _ = finish(start("list"))
    _, names, _ = finish(start("ls", "-q"))

    assert code == 0
    assert out.splitlines()[1].split("\t")[0] == NAME
    assert names == f"{NAME}\n"


@pytest.mark.e2e
def test_list_json_has_every_fact(start: Start, downloaded: Path) -> None:
    (model,) = json.loads(finish(start("list", "--json"))[1])["models"]

    assert model["name"] == NAME
    assert model["path"] == str(downloaded)
    assert model["revision"] == COMMIT
    assert model["installed"] is True


def test_show_tells_a_temperature_of_zero(
    call: Call, model: Path, tmp_path: Path
) -> None:
    greedy = shutil.copytree(model, tmp_path / "greedy")
    (greedy / "generation_config.json").write_text('{"temperature": 0.0}')

    defaults = call("show", str(greedy), "--json").json["sampling_defaults"]

    assert defaults == {"temperature": 0.0}


@pytest.mark.e2e
def test_rm_looks_at_every_name_before_it_deletes(
    start: Start, downloaded: Path
) -> None:
    code, _, err = finish(start("rm", NAME, "tiny/lama", "--yes"))

    assert code == 3
    assert "tiny/lama" in err
    assert downloaded.exists()
    assert finish(start("rm", NAME, NAME, "--yes"))[0] == 0
    assert not downloaded.exists()


@pytest.mark.e2e
def test_rm_asks_and_no_answer_means_no(start: Start, downloaded: Path) -> None:
    code, _, err = finish(start("rm", NAME))

    assert code == 2
    assert "add --yes" in err
    assert downloaded.exists()


@pytest.mark.e2e
@pytest.mark.parametrize(("answer", "stays"), [(b"n\n", True), (b"y\n", False)])
def test_rm_does_what_the_person_says(
    start: Start, downloaded: Path, answer: bytes, stays: bool
) -> None:
    code, shown = on_terminal(
        start, "rm", NAME, typed=(("[y/N]", answer),), TERM="xterm"
    )

    assert downloaded.exists() is stays
    assert code == (1 if stays else 0)
    assert "Delete tiny/llama? [y/N]" in shown


@pytest.mark.e2e
def test_rm_dry_run_names_what_would_go(start: Start, downloaded: Path) -> None:
    code, out, _ = finish(start("rm", NAME, "--dry-run", "--json"))

    (removed,) = json.loads(out)["removed"]
    assert code == 0
    assert removed["freed_bytes"] > 0
    assert downloaded.exists()


def test_an_unknown_model_is_told_with_near_names(call: Call) -> None:
    result = call("show", "dmeo")

    assert result.code == 3
    assert "'dmeo'  [E-MODEL-UNKNOWN]" in result.err
    assert "demo" in result.err


def test_a_word_that_is_no_model_may_have_been_a_prompt(call: Call) -> None:
    result = call("run", "hello", "you")

    assert result.code == 3
    assert "splashpy run demo 'hello you'" in result.err


def test_a_model_that_is_not_here_is_told_with_the_command(call: Call) -> None:
    result = call("run", "qwen3.8-27b", "hi")

    assert result.code == 3
    assert "[E-MODEL-MISSING]" in result.err
    assert "splashpy pull qwen3.8-27b" in result.err


def test_a_directory_that_is_no_model_is_one_line(call: Call, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    result = call("run", str(tmp_path), "hi")

    assert result.code == 3
    assert result.err.count("error:") == 1
    assert "config.json" in result.err
    assert "Traceback" not in result.err


def test_a_model_with_code_of_its_own_is_refused_and_not_run(
    call: Call, model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "hostile"
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "evil.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")

    result = call("run", str(folder), "hi")

    assert result.code == 3
    assert "[E-CODE]" in result.err
    assert not (tmp_path / "ran").exists()


def test_a_file_cut_short_is_named_with_both_sizes(
    call: Call, model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cut"
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])

    result = call("run", str(folder), "hi")

    assert result.code == 5
    assert "model.safetensors" in result.err
    assert "[E-HASH]" in result.err


def test_a_package_of_a_later_format_asks_for_an_update(
    call: Call, tmp_path: Path
) -> None:
    manifest = {"format": {"name": "splashpy-package", "version": 99}}
    (tmp_path / "splashpy.json").write_text(json.dumps(manifest))
    result = call("run", str(tmp_path), "hi")

    assert result.code == 1
    assert "[E-VERSION]" in result.err
    assert "99" in result.err


@pytest.mark.e2e
def test_a_drafter_that_is_none_ends_the_process_with_the_error_alone(
    start: Start, model: Path
) -> None:
    words = ("run", str(model), "hi", "--draft", str(model), "-q")
    code, out, err = finish(start(*words))

    assert (code, out) == (3, "")
    assert err.startswith("error: ")
    assert len(err.splitlines()) <= 5


@pytest.mark.e2e
def test_offline_without_the_demo_says_so_and_ends_with_6(start: Start) -> None:
    code, _, err = finish(start("run", "demo", "hi", HF_HUB_OFFLINE="1"))

    assert code == 6
    assert "[E-OFFLINE]" in err
    assert "Traceback" not in err


def test_revision_goes_only_with_a_repository(call: Call) -> None:
    result = call("run", "demo", "hi", "--revision", "main")

    assert result.code == 2
    assert "--revision main does not go with 'demo'" in result.err


def test_pulling_an_unknown_name_is_an_error(call: Call) -> None:
    assert call("pull", "dmeo").code == 3


def test_a_model_answers_a_prompt_from_beginning_to_end(
    call: Call, model: Path
) -> None:
    words = ("run", str(model), "hi", "--temp", "0", "--max-tokens", "6", "--json")
    first, second = call(*words), call(*words, "--no-draft")

    assert first.code == second.code == 0
    assert first.json["usage"]["completion"] == 6
    assert first.json["text"] == second.json["text"]
    assert second.json["spec"]["drafted"] == 0


def test_verbose_says_why_there_is_no_drafter(call: Call, model: Path) -> None:
    words = ("run", str(model), "hi", "--max-tokens", "2", "-v")

    assert "draft lookup: the package has no drafter" in call(*words).err
    assert "draft off: --no-draft" in call(*words, "--no-draft").err


def test_the_same_seed_gives_the_same_text(call: Call, model: Path) -> None:
    words = ("run", str(model), "hi", "--temp", "1", "--seed", "7", "--max-tokens", "8")

    assert call(*words).out == call(*words).out


def test_a_prompt_longer_than_the_context_is_refused_with_counts(
    call: Call, model: Path
) -> None:
    result = call("run", str(model), "x" * 200, "--max-context", "64")

    assert result.code == 4
    assert "[E-CONTEXT]" in result.err
    assert "64" in result.err
