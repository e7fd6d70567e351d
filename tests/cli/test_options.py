# SPDX-License-Identifier: Apache-2.0
"""Values of options, where they come from, and what is allowed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from commandline import Call
from hypothesis import given
from hypothesis import strategies as st

from splashpy.cli import values
from splashpy.cli.invocation import Invocation
from splashpy.cli.options import OPTIONS, Environment
from splashpy.errors import ModelKindError, UsageError
from splashpy.protocol import LoadOptions, Sampling

NOTHING = {name: row.absent for name, row in OPTIONS.items()}


def invocation(**given: Any) -> Invocation:
    return Invocation.of({**NOTHING, **given})


def test_without_options_everything_is_the_packages_choice() -> None:
    assert invocation().sampling() == Sampling()
    given = invocation()
    options = LoadOptions(cache_dir=str(given.paths.cached_prompts))
    assert given.load_options() == options


def test_each_sampling_option_reaches_its_field() -> None:
    given = {
        "temp": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "penalty_window": 64,
        "logit_bias": ((7, -5.0),),
        "seed": 3,
        "stop": ("END",),
    }
    assert invocation(**given).sampling() == Sampling(
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        penalty_window=64,
        logit_bias=((7, -5.0),),
        seed=3,
        stop=("END",),
    )


def test_each_engine_option_reaches_its_field(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    given = {
        "draft": str(tmp_path),
        "no_lookup": True,
        "block_size": 4,
        "draft_bits": 8,
        "max_context": 1024,
        "no_prefix_cache": True,
        "kv": "q8",
        "cache_ram": 1000,
        "cache_disk": 0,
    }
    given = invocation(**given)
    assert given.load_options() == LoadOptions(
        draft=str(tmp_path),
        lookup=False,
        block_size=4,
        draft_bits=8,
        max_context=1024,
        prefix_cache=False,
        kv="q8",
        cache_ram=1000,
        cache_disk=0,
        cache_dir=str(given.paths.cached_prompts),
    )


def test_a_missing_drafter_directory_is_named() -> None:
    with pytest.raises(UsageError, match=r"--draft got '/no/such'"):
        invocation(draft="/no/such").load_options()


def test_a_directory_without_a_drafter_says_what_one_holds(tmp_path: Path) -> None:
    with pytest.raises(ModelKindError, match=r"config\.json is missing") as caught:
        invocation(draft=str(tmp_path)).load_options()
    assert "model.safetensors" in caught.value.why
    assert caught.value.fix[0].startswith("leave --draft out")


def test_a_package_given_as_a_drafter_leads_to_the_drafter_in_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").write_text("{}")
    with pytest.raises(ModelKindError) as caught:
        invocation(draft=str(tmp_path)).load_options()
    assert caught.value.fix == (f"--draft {tmp_path / 'draft'}",)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--temp", "9"), "--temp got '9'"),
        (("--temp", "warm"), "a number from 0 to 2"),
        (("--temp", "nan"), "a number from 0 to 2"),
        (("--top-p", "0"), "a number above 0"),
        (("--top-k", "-1"), "a whole number of at least 0"),
        (("--min-p", "1.5"), "a number from 0 to 1"),
        (("--repetition-penalty", "0"), "a number above 0"),
        (("--presence-penalty", "3"), "a number from -2 to 2"),
        (("--penalty-window", "0"), "a whole number of at least 1"),
        (("--logit-bias", "5"), "TOKEN_ID=VALUE"),
        (("--logit-bias", "5=200"), "-100 to 100"),
        (("--seed", "-1"), "a whole number from 0 to 18446744073709551615"),
        (("--max-tokens", "0"), "a token count of at least 1"),
        (("--max-context", "lots"), "such as 32K"),
        (("--block-size", "0"), "a whole number from 1 to 64"),
        (("--draft-bits", "5"), "one of 4, 8, 16"),
        (("--reasoning", "maybe"), "one of auto, show, hide"),
        (("--color", "blue"), "one of auto, always, never"),
    ],
)
def test_a_value_outside_its_range_is_quoted_with_the_range(
    call: Call, words: tuple[str, str], said: str
) -> None:
    result = call("run", "demo", "hi", *words)

    assert result.code == 2
    assert said in result.err
    assert f"{words[0]} got '{words[1]}'  [E-USAGE]" in result.err


@given(st.integers(0, 2**64 - 1))
def test_any_seed_of_64_bits_is_read(seed: int) -> None:
    row = OPTIONS["seed"]
    assert row.parser is not None
    assert values.parse(row.parser, str(seed), "--seed") == seed


@given(st.text(max_size=8))
def test_no_text_makes_a_parser_fail_in_another_way(text: str) -> None:
    for row in OPTIONS.values():
        if row.parser is not None:
            with contextlib.suppress(UsageError):
                values.parse(row.parser, text, row.flags)


def test_a_flag_wins_over_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLASHPY_MAX_CONTEXT", "2K")

    assert invocation().load_options().max_context == 2048
    assert invocation(max_context=512).load_options().max_context == 512


def test_a_bad_variable_is_named(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLASHPY_MAX_CONTEXT", "big")
    result = call("run", "demo", "hi")

    assert result.code == 2
    assert "SPLASHPY_MAX_CONTEXT got 'big'" in result.err


def test_a_variable_names_the_model_before_the_configuration_does(
    monkeypatch: pytest.MonkeyPatch, clean_environment: Path
) -> None:
    configure(clean_environment, '[defaults]\nmodel = "from-config"\n')
    assert invocation().wanted_model == "from-config"

    monkeypatch.setenv("SPLASHPY_MODEL", "from-variable")
    assert invocation().wanted_model == "from-variable"


def test_an_unknown_key_warns_with_the_nearest_and_is_ignored(
    call: Call, clean_environment: Path
) -> None:
    configure(clean_environment, '[defaults]\nmodle = "x"\n[extra]\na = 1\n')
    result = call("list")

    assert result.code == 0
    assert "unknown key defaults.modle, the nearest is defaults.model" in result.err
    assert "unknown key extra.a" in result.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[defaults\n", "is not TOML"),
        ("[defaults]\nmodel = 3\n", "defaults.model is 3"),
        ("[chat]\nmouse = 1\n", "chat.mouse is 1"),
    ],
)
def test_a_broken_configuration_is_a_usage_error_with_its_path(
    call: Call, clean_environment: Path, content: str, said: str
) -> None:
    configure(clean_environment, content)
    result = call("list")

    assert result.code == 2
    assert "config.toml" in result.err
    assert said in result.err


@pytest.mark.parametrize(
    ("variables", "offline"),
    [
        ({}, False),
        ({"HF_HUB_OFFLINE": "1"}, True),
        ({"HF_HUB_OFFLINE": "0"}, False),
        ({"TRANSFORMERS_OFFLINE": "yes"}, True),
    ],
)
def test_offline_follows_the_spellings_of_the_hub(
    variables: Mapping[str, str], *, offline: bool
) -> None:
    assert Environment(variables).offline is offline


@pytest.mark.parametrize(
    ("variables", "theme"),
    [
        ({"COLORTERM": "truecolor"}, None),
        ({"COLORTERM": "24bit", "COLORFGBG": "0;15"}, None),
        ({}, "ansi-dark"),
        ({"COLORFGBG": "15;0"}, "ansi-dark"),
        ({"COLORFGBG": "0;default;15"}, "ansi-light"),
    ],
)
def test_a_terminal_of_few_colours_has_a_theme_of_its_own(
    variables: Mapping[str, str], theme: str | None
) -> None:
    assert Environment(variables).theme == theme


def test_one_directory_holds_everything_and_the_cache_may_be_elsewhere(
    monkeypatch: pytest.MonkeyPatch, clean_environment: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPLASHPY_CACHE", str(tmp_path))
    paths = invocation().paths

    assert paths.data == clean_environment / "data"
    assert paths.cache == tmp_path


def configure(home: Path, content: str) -> None:
    (home / "config").mkdir()
    (home / "config" / "config.toml").write_text(content)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("28G", 28_000_000_000),
        ("28GiB", 28 * 2**30),
        ("28000M", 28_000_000_000),
        ("1.5 kb", 1500),
        ("0", 0),
    ],
)
def test_a_size_is_decimal_unless_it_says_i(text: str, count: int) -> None:
    assert values.size(text) == count


@pytest.mark.parametrize("name", ["memory", "max_request_size", "max_memory"])
def test_a_limit_of_nothing_is_refused_and_not_taken_for_no_limit(name: str) -> None:
    parser = OPTIONS[name].parser
    assert parser is not None
    with pytest.raises(UsageError, match="got '0G'"):
        values.parse(parser, "0G", OPTIONS[name].flag)
    assert parser("1G") == 10**9


@given(st.lists(st.integers(0, 99), min_size=1, max_size=5))
def test_a_list_of_numbers_is_read_as_it_is_written(numbers: list[int]) -> None:
    assert values.numbers(",".join(map(str, numbers))) == tuple(numbers)
    assert values.numbers_or_none("none") == ()
