# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from splash_kit import NAMES, write_tiny_splash

from splashpy.errors import (
    IntegrityError,
    ModelKindError,
    ModelUnknownError,
    RemoteCodeError,
    VersionError,
)
from splashpy.package.model_directory import (
    CONTEXT_DEFAULT,
    ModelDirectory,
    context_max,
)
from splashpy.package.splash.formats import FORMATS
from splashpy.protocol import Sampling

MakeModel = Callable[..., Path]
MakePackage = Callable[[Path], Path]


def write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data), encoding="utf-8")


def test_a_plain_mlx_model_is_one_directory(make_model: MakeModel) -> None:
    path = make_model()

    model = ModelDirectory.open(path)

    assert (model.kind, model.target, model.tokenizer) == ("mlx", path, path)
    assert (model.hidden_size, model.num_layers, model.vocab_size) == (8, 2, 16)
    assert model.draft is None
    assert model.context_max == 512
    assert model.size_bytes == sum(f.stat().st_size for f in path.iterdir())


def test_a_package_has_its_parts_apart(
    tmp_path: Path, make_package: MakePackage
) -> None:
    path = make_package(tmp_path / "package")

    model = ModelDirectory.open(path)

    assert model.kind == "native"
    assert (model.target, model.tokenizer) == (path / "target", path / "tokenizer")
    assert model.manifest is not None
    assert model.manifest.name == "tiny"


def test_a_path_that_is_no_directory_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(ModelUnknownError, match="no such directory"):
        ModelDirectory.open(tmp_path / "nothing")


@pytest.mark.parametrize(
    "key", ["model_type", "hidden_size", "num_hidden_layers", "vocab_size"]
)
def test_a_missing_key_is_one_line_with_file_and_key(
    make_model: MakeModel, key: str
) -> None:
    path = make_model(**{key: ...})

    with pytest.raises(ModelKindError) as failure:
        ModelDirectory.open(path)

    assert failure.value.message == f"{path / 'config.json'}: key {key} is missing"


@pytest.mark.parametrize("value", [0, -1, "8", 8.0, True, [8]])
def test_a_size_of_a_wrong_kind_names_the_key(
    make_model: MakeModel, value: Any
) -> None:
    with pytest.raises(ModelKindError, match="hidden_size must be an integer"):
        ModelDirectory.open(make_model(hidden_size=value))


def test_sizes_may_be_in_the_text_part(make_model: MakeModel) -> None:
    text = {"hidden_size": 8, "num_hidden_layers": 3, "vocab_size": 16}

    model = ModelDirectory.open(make_model(hidden_size=..., text_config=text))

    assert model.num_layers == 3


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_position_embeddings": 32768}, 32768),
        ({"text_config": {"max_position_embeddings": 262144}}, 262144),
        (
            {
                "max_position_embeddings": 512,
                "text_config": {"max_position_embeddings": 1024},
            },
            1024,
        ),
        ({"n_ctx": 2048}, 2048),
        ({"max_position_embeddings": 4 << 20}, 4 << 20),
        ({}, CONTEXT_DEFAULT),
        ({"max_position_embeddings": None}, CONTEXT_DEFAULT),
        ({"max_position_embeddings": 10**30}, CONTEXT_DEFAULT),
        ({"max_position_embeddings": (4 << 20) + 1}, CONTEXT_DEFAULT),
        ({"max_position_embeddings": 0}, CONTEXT_DEFAULT),
        ({"max_position_embeddings": -1}, CONTEXT_DEFAULT),
        ({"max_position_embeddings": "8192"}, CONTEXT_DEFAULT),
        ({"max_position_embeddings": 8192.0}, CONTEXT_DEFAULT),
        ({"max_position_embeddings": True}, CONTEXT_DEFAULT),
        ({"text_config": []}, CONTEXT_DEFAULT),
    ],
)
def test_the_context_is_the_models_own_or_the_default(
    config: dict[str, Any], expected: int
) -> None:
    assert context_max(config) == expected


def test_every_file_may_add_an_end_token(make_model: MakeModel) -> None:
    path = make_model(eos_token_id=5)
    write(path / "generation_config.json", {"eos_token_id": [1, 106]})
    write(path / "tokenizer_config.json", {"eos_token": "<eos>"})
    write(
        path / "tokenizer.json",
        {"added_tokens": [{"id": 9, "content": "<eos>"}, {"id": 3, "content": "<x>"}]},
    )

    assert ModelDirectory.open(path).eos_token_ids() == (1, 5, 9, 106)


def test_the_tokenizers_end_token_may_be_an_object(make_model: MakeModel) -> None:
    path = make_model(eos_token_id=None)
    decoder = {"4": {"content": "</s>"}}
    eos = {"content": "</s>", "lstrip": False}
    write(
        path / "tokenizer_config.json",
        {"eos_token": eos, "added_tokens_decoder": decoder},
    )

    assert ModelDirectory.open(path).eos_token_ids() == (4,)


def test_the_manifest_adds_end_tokens(
    tmp_path: Path, make_package: MakePackage
) -> None:
    model = ModelDirectory.open(make_package(tmp_path / "package"))

    assert model.eos_token_ids() == (2, 7)


@pytest.mark.parametrize(
    ("tokenizer_config", "tokenizer"),
    [
        ({"eos_token": 7}, {}),
        ({"eos_token": {"content": None}}, {}),
        ({"eos_token": "x", "added_tokens_decoder": []}, {"added_tokens": 3}),
        ({"eos_token": "x", "added_tokens_decoder": {"²": {"content": "x"}}}, {}),
        ({"eos_token": "x"}, {"added_tokens": [{"content": "x", "id": "1"}, 5]}),
    ],
)
def test_an_odd_tokenizer_adds_no_end_token(
    make_model: MakeModel, tokenizer_config: dict[str, Any], tokenizer: dict[str, Any]
) -> None:
    path = make_model()
    write(path / "tokenizer_config.json", tokenizer_config)
    write(path / "tokenizer.json", tokenizer)

    assert ModelDirectory.open(path).eos_token_ids() == (2,)


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        (
            {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "do_sample": True},
            Sampling(temperature=0.6, top_p=0.95, top_k=20),
        ),
        ({"temperature": 0.6, "do_sample": False}, Sampling(temperature=0.0)),
        ({}, Sampling()),
    ],
)
def test_sampling_defaults_are_the_makers(
    make_model: MakeModel, generation: dict[str, Any], expected: Sampling
) -> None:
    path = make_model()
    write(path / "generation_config.json", generation)

    assert ModelDirectory.open(path).sampling == expected


def test_a_model_without_a_tokenizer_is_refused(make_model: MakeModel) -> None:
    path = make_model()
    (path / "tokenizer.json").unlink()

    with pytest.raises(ModelKindError, match=r"tokenizer\.json is missing"):
        ModelDirectory.open(path)


@pytest.mark.parametrize(
    ("name", "version"),
    [("splash-packed-q8", 5), ("gguf", 3), ("splash-packed-q4-qwen4exp", 5)],
)
def test_look_alikes_of_splash_packages_are_named(
    tmp_path: Path, name: str, version: int
) -> None:
    write(
        tmp_path / "manifest.json",
        {"schema_version": version, "format": {"name": name}},
    )

    with pytest.raises(VersionError, match=name):
        ModelDirectory.open(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_splash_package_is_a_model_with_a_drafter(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    splash = write_tiny_splash(tmp_path / "package", name)
    monkeypatch.setitem(FORMATS, name, splash.row)

    model = ModelDirectory.open(splash.path)

    assert (model.kind, model.draft) == ("splash", splash.path)
    assert (model.num_layers, model.context_max) == (4, 512)
    assert model.eos_token_ids() == (0, 1, 258)  # the last one is the tokenizer's
    assert model.sampling == Sampling(temperature=1.0, top_p=0.95, top_k=20)


def test_a_directory_of_gguf_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")

    with pytest.raises(ModelKindError, match="GGUF files") as failure:
        ModelDirectory.open(tmp_path)

    assert failure.value.fix[0].startswith(f"splashpy pack {tmp_path}/model.gguf -o")


def test_config_and_manifest_must_agree(
    tmp_path: Path,
    make_package: MakePackage,
    rewrite_manifest: Callable[[Path], Any],
) -> None:
    path = make_package(tmp_path / "package")
    config = json.loads((path / "target" / "config.json").read_text(encoding="utf-8"))
    write(path / "target" / "config.json", config | {"hidden_size": 4})
    rewrite_manifest(path)

    with pytest.raises(IntegrityError, match="disagree") as failure:
        ModelDirectory.open(path)

    assert "(8, 2, 16) and (4, 2, 16)" in failure.value.why


EVIL = "from pathlib import Path\nPath({marker!r}).write_text('ran')\n"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", {"model_file": "evil.py"}),
        ("config.json", {"auto_map": {"AutoModelForCausalLM": "evil.Model"}}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.T", None]}}),
    ],
)
def test_python_of_a_repository_never_runs(
    tmp_path: Path, make_model: MakeModel, file: str, content: dict[str, Any]
) -> None:
    marker = tmp_path / "marker"
    path = make_model(**content) if file == "config.json" else make_model()
    if file != "config.json":
        write(path / file, content)
    (path / "evil.py").write_text(EVIL.format(marker=str(marker)), encoding="utf-8")
    code = (
        "import sys; from pathlib import Path\n"
        "from splashpy.package.model_directory import ModelDirectory\n"
        "ModelDirectory.open(Path(sys.argv[1]))"
    )

    with pytest.raises(RemoteCodeError, match="asks to run Python"):
        ModelDirectory.open(path)
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, cwd=path, check=False
    )

    assert b"RemoteCodeError" in done.stderr
    assert not marker.exists()


def test_an_absurd_number_of_layers_is_refused(make_model: MakeModel) -> None:
    """mlx-lm would make them all before it misses their weights."""
    with pytest.raises(ModelKindError, match="num_hidden_layers is 1000000000"):
        ModelDirectory.open(make_model(num_hidden_layers=10**9))


@pytest.mark.parametrize("name", ["9" * 5000, "٣", "-1", ""])
def test_an_odd_token_id_names_no_end_token(make_model: MakeModel, name: str) -> None:
    path = make_model()
    tokens = {"eos_token": "</s>", "added_tokens_decoder": {name: {"content": "</s>"}}}
    (path / "tokenizer_config.json").write_text(json.dumps(tokens), encoding="utf-8")

    assert ModelDirectory.open(path).eos_token_ids() == (2,)


@pytest.mark.parametrize(
    "changes",
    [
        *({"intermediate_size": -1}, {"head_dim": True}, {"num_key_value_heads": -1}),
        *({"num_attention_heads": 2**31}, {"num_attention_heads": 1.5}),
        *({"head_dim": "64"}, {"text_config": {"head_dim": 0}}),
        *({"quantization": 4}, {"quantization": []}, {"quantization": {"bits": 4}}),
        {"quantization": {"bits": 4, "group_size": 0}},
        {"quantization": {"bits": 4, "group_size": 64, "lm_head": {"bits": None}}},
    ],
)
def test_a_number_no_model_has_is_refused(
    make_model: MakeModel, changes: dict[str, Any]
) -> None:
    """A group of no weights would end the process, without an exception."""
    with pytest.raises(ModelKindError, match=r"config\.json: .* is "):
        ModelDirectory.open(make_model(**changes))


def test_sizes_may_be_lists_and_packings_may_have_exceptions(
    make_model: MakeModel,
) -> None:
    packed = {"bits": 4, "group_size": 64, "mode": "affine", "lm_head": False}
    packed["model.embed_tokens"] = {"bits": 8}
    sizes = {"intermediate_size": [16, 32], "head_dim": None}

    assert ModelDirectory.open(make_model(quantization=packed, **sizes))
